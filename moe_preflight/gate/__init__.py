"""A gate: the deployments to hold, what each must reach, and what is forgiven, read from one TOML file and judged as one report.

    bytes -> toml.py -> spec.py (strict, by the kinds of keys.py) -> run.py: for each deployment
        preflight.check -> requirements.py -> policy.py (severity, select, ignore) -> baseline.py -> merge.py: one document

The day and the files' contents are handed in: nothing here reads a clock, and two runs of one gate say the same.
"""
