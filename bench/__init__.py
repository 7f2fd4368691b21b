"""The benchmarks: ``make bench``. One file for each question, each with the engine as a process of its own.

``answers`` how many deliveries are kept and answered, how fast, and when they are handled · ``matching`` what a
playbook set costs · ``reaction`` from the answer to the act · ``memory`` in a storm · ``recovery`` the start on a long
history · ``replay`` a week decided anew · ``scenarios`` playbook tests · ``exporter`` its share of a core, and how
old its values are. ``load`` makes the deliveries, ``child`` the
processes, ``machine`` says what it all ran on, ``result`` is what each gives, ``report`` shows it.
"""
