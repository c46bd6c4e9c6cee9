"""`python -m model train`: a recipe -> a run folder."""

import argparse
from pathlib import Path

from model.cli.arguments import add_shared_arguments
from model.config.recipes import choose_recipe
from model.config.run import RUNS
from model.data.own_recipe import OwnData, settings_for
from model.errors import UserError
from model.training.device import choose_device
from model.training.run import Request, train


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `train`."""
    add_shared_arguments(parser)
    parser.add_argument(
        "recipe", nargs="?", help="a .toml file, or the name of one in model/recipes (default: that of the task)"
    )
    parser.add_argument("--task", choices=list(RUNS), help="take this task's default recipe")
    parser.add_argument("--text-column", nargs="+", help="of --data (default: text; for pairs: text_a text_b)")
    parser.add_argument("--label-column", default="label", help="of --data (default: %(default)s)")
    parser.add_argument("--time-column", default="", help="of --data (default: its first column)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override one key of the recipe"
    )
    parser.add_argument("--runs", default="runs", help="folder of run folders (default: %(default)s)")
    parser.add_argument("--resume", action="store_true", help="go on from the run's last checkpoint")


def run(args: argparse.Namespace) -> Path:
    """Train the recipe named, the task's own, or for own data that of its task; returns the run folder.

    Raises: UserError.
    """
    device = choose_device(args.device)
    settings = None
    if args.data is not None:
        if args.task is None or args.recipe is not None:
            raise UserError(f"--data goes with --task ({', '.join(RUNS)}), and without a recipe")
        own = OwnData(Path(args.data), tuple(args.text_column or ()), args.label_column, args.time_column)
        settings = settings_for(args.task, own)
    recipe = choose_recipe(args.recipe, args.task, args.set, settings)
    return train(Request(recipe, Path(args.data or args.data_dir), Path(args.runs), device, args.resume))
