"""Values and decisions. Pure: no clock, files, network, threads, randomness or logging.

Later stages import earlier ones only: alert, outcome, retry, units → action, decode, matcher → policy, render →
playbook → match → plan → guard, event → run → move → message. What stands side by side does not know each other.
"""
