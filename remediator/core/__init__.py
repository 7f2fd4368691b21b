"""Values and decisions. Pure: no clock, files, network, threads, randomness or logging.

Later stages import earlier ones only: units, alert → decode → matcher → outcome, retry, action → playbook, policy →
match → render → plan → guard → event → run → move → message.
"""
