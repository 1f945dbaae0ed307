"""The lab: runs, grids, tuning, the paper and its verdicts, the report, the command."""
