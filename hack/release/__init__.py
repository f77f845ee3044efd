"""Makes everything that a tag publishes. `python -m hack.release --help` lists the options."""
