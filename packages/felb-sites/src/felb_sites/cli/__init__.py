"""The commands of a federation of sites."""

COMMANDS = {
    "federation": (
        "create a federation of several sites and run its relay",
        "felb_sites.cli.federation:federation_command",
    ),
    "site": ("take part in a federation as a site that keeps its data", "felb_sites.cli.site:site_command"),
    "run": ("execute a run over the sites of a federation", "felb_sites.cli.run:run_command"),
    "status": ("show the sites and runs of a federation", "felb_sites.cli.run:status_command"),
}
"""The commands that this distribution adds to ``felb``."""
