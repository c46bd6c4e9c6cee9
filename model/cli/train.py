"""`python -m model train`: train a recipe into a run folder."""

import argparse
from pathlib import Path

from artifact.series import Layout, names_of
from artifact.tables.labelled import RecordingLayout
from model.cli.arguments import (
    add_held_out_arguments,
    add_shared_arguments,
    encoding_argument,
    files_of,
    path_argument,
)
from model.config.run import RUNS, ClassificationRun, MatchingRun, SeriesClassificationRun
from model.data.own_recipe import LENGTHS, LONGEST_READ, TextLayout
from model.errors import UserError
from model.runs.train import TrainingRequest, train

FOLDS = range(2, 21)
"""Values of --folds."""
HARD_NEGATIVES = range(1, 51)
"""Values of --hard-negatives."""
OF_OWN: dict[str, tuple[str, ...]] = {
    "--text-column": ("texts",),
    "--label-column": ("texts", "recordings"),
    "--time-column": ("recordings", "series"),
    "--channels": ("recordings", "series"),
    "--ignore": ("recordings", "series"),
    "--id-column": ("recordings", "series"),
    "--target-column": ("series",),
    "--day-first": ("recordings", "series"),
    "--frequency": ("series",),
    "--fill": ("series",),
    "--encoding": ("texts", "recordings", "series"),
}
"""Options about the user's files -> what files they are for, as `reads` of a recipe."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `train`."""
    add_shared_arguments(parser)
    add_held_out_arguments(parser)
    parser.add_argument(
        "recipe", nargs="?", help=".toml file, or name of a recipe in model/recipes (default: the task's recipe)"
    )
    parser.add_argument("--task", choices=list(RUNS), help="use the default recipe of this task")
    parser.add_argument(
        "--text-column",
        nargs="+",
        help="text columns of --data (default: text; for pairs: text_a text_b, or three without labels: query, text "
        "that matches, text that does not)",
    )
    parser.add_argument("--label-column", default="label", help="label column of --data (default: %(default)s)")
    parser.add_argument(
        "--label-separator",
        default="",
        metavar="TEXT",
        help="what separates the labels of a document of --data, of which there may be any number, such as ';' "
        "(default: one label, or a list of labels)",
    )
    parser.add_argument(
        "--group-column",
        default="",
        help="column of --data with groups of documents, such as authors, that are not split (default: no groups)",
    )
    parser.add_argument(
        "--encoding",
        type=encoding_argument,
        default="",
        metavar="NAME",
        help="encoding of --data and its other files, such as cp1252 (default: UTF-8, or by a byte order mark)",
    )
    parser.add_argument(
        "--max-bytes",
        type=int,
        choices=LENGTHS,
        metavar="BYTES",
        help="bytes that a classifier of --data reads at once, a power of two from "
        f"{LENGTHS[0]} to {LENGTHS[-1]} (default: by the lengths of the documents, up to {LONGEST_READ})",
    )
    parser.add_argument(
        "--class-weights",
        choices=("none", "balanced"),
        help="balanced: all classes of --data weigh the same in training, however many documents they have",
    )
    parser.add_argument(
        "--hard-negatives",
        type=int,
        choices=HARD_NEGATIVES,
        metavar="N",
        default=0,
        help="add N similar texts that do not match for each pair of --data that does "
        f"({HARD_NEGATIVES[0]} to {HARD_NEGATIVES[-1]})",
    )
    parser.add_argument(
        "--folds",
        type=int,
        choices=FOLDS,
        metavar="K",
        default=0,
        help=f"measure K models of --data before, each on documents that it has not seen ({FOLDS[0]} to {FOLDS[-1]})",
    )
    parser.add_argument(
        "--unlabelled",
        type=path_argument,
        metavar="PATH",
        help="file or folder of unlabelled documents to learn from as well",
    )
    parser.add_argument(
        "--series",
        nargs="+",
        type=path_argument,
        default=(),
        metavar="FILE",
        help="tables of series that train the recipe any-series beside generated ones; needs data.series_share",
    )
    parser.add_argument(
        "--time-column", default="", metavar="NAME", help="time column of --data (default: the one that holds times)"
    )
    parser.add_argument(
        "--channels",
        type=names_of,
        default=(),
        metavar="A,B",
        help="channels of --data (default: all columns of numbers, or all series of a long table)",
    )
    parser.add_argument(
        "--ignore", type=names_of, default=(), metavar="A,B", help="columns of --data that are left out"
    )
    parser.add_argument(
        "--id-column",
        default="",
        metavar="NAME",
        help="column of --data that names the series or recording of each row; for series with --target-column",
    )
    parser.add_argument(
        "--target-column", default="", metavar="NAME", help="column of --data with the values of a long table"
    )
    parser.add_argument(
        "--rate",
        type=float,
        metavar="HZ",
        help="steps per second of labelled recordings (default: by their time column, or unknown)",
    )
    parser.add_argument(
        "--day-first", action="store_true", help="read the day first in dates of --data such as 31/12/2024"
    )
    parser.add_argument(
        "--frequency",
        default="",
        help="time step of --data, such as 15min, 1d, 1mo, W-SUN or QS-OCT, or irregular: rows are equally spaced "
        "(default: that of the time column)",
    )
    parser.add_argument("--fill", action="store_true", help="interpolate missing values and time steps of --data")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override one key of the recipe"
    )
    parser.add_argument("--runs", default="runs", help="parent folder of the run folders (default: %(default)s)")
    parser.add_argument("--resume", action="store_true", help="resume from the run's last checkpoint")


def run(args: argparse.Namespace) -> Path:
    """Train a recipe: the named one, the default of --task, or with --data the task's recipe for user data.

    Returns the run folder. Raises: UserError.
    """
    files = files_of(args)
    _check(args)
    request = TrainingRequest(
        task=args.task,
        recipe=args.recipe,
        overrides=tuple(args.set),
        files=files,
        texts=TextLayout(
            tuple(args.text_column or ()),
            args.label_column,
            args.group_column,
            args.label_separator,
            args.encoding,
            args.max_bytes,
            args.class_weights,
            args.hard_negatives,
        ),
        series=Layout(
            time_column=args.time_column,
            id_column=args.id_column,
            target_column=args.target_column,
            channels=args.channels,
            ignore=args.ignore,
            frequency=args.frequency,
            day_first=args.day_first,
            encoding=args.encoding,
        ),
        recordings=RecordingLayout(
            id_column=args.id_column,
            time_column=args.time_column,
            label_column=args.label_column,
            group_column=args.group_column,
            channels=args.channels,
            ignore=args.ignore,
            rate=args.rate,
            encoding=args.encoding,
            day_first=args.day_first,
        ),
        fill=args.fill,
        runs=Path(args.runs),
        device=args.device,
        is_resumed=args.resume,
        folds=args.folds,
    )
    return train(request)


def _check(args: argparse.Namespace) -> None:
    """Refuse options that do not go together. Raises: UserError."""
    is_own, kind = args.data is not None, RUNS.get(args.task)
    of_documents = {
        "--unlabelled": (args.unlabelled is not None, ", the labelled documents"),
        "--max-bytes": (args.max_bytes is not None, ""),
        "--folds": (args.folds, ""),
        "--class-weights": (args.class_weights is not None, ""),
        "--label-separator": (args.label_separator != "", ""),
    }
    for name, (is_given, what) in of_documents.items():
        if is_given and not (is_own and kind is ClassificationRun):
            raise UserError(f"{name} needs --task text-classification and --data{what}")
    if args.hard_negatives and not (is_own and kind is MatchingRun):
        raise UserError("--hard-negatives needs --task text-matching and --data")
    if args.group_column and not (is_own and kind in (ClassificationRun, SeriesClassificationRun)):
        raise UserError("--group-column needs --data and --task text-classification or series-classification")
    if args.rate is not None and not (is_own and kind is SeriesClassificationRun):
        raise UserError("--rate needs --data and --task series-classification")
    if args.rate is not None and not args.rate > 0:
        raise UserError(f"--rate must be a positive number of steps per second, not {args.rate:g}")
    _check_files(args)
    if is_own and args.task is None:
        raise UserError(f"--data needs --task ({', '.join(RUNS)})")
    if kind is not None and kind.reads == "series" and (args.validation or args.test):
        raise UserError("--validation and --test are for documents and pairs; a series is split by time")


def _check_files(args: argparse.Namespace) -> None:
    """Refuse options about the user's files without such files, or for other ones. Raises: UserError."""
    for name in (name for name in OF_OWN if _is_given(args, name)):
        if args.data is None:
            raise UserError(f"{name} needs --data, your own file or folder, and --task")
        if args.task is not None and RUNS[args.task].reads not in OF_OWN[name]:
            tasks = " or ".join(task for task, run in RUNS.items() if run.reads in OF_OWN[name])
            raise UserError(f"{name} is for --task {tasks}, not {args.task}")


def _is_given(args: argparse.Namespace, name: str) -> bool:
    """Whether an option has another value than its default."""
    value = getattr(args, name.removeprefix("--").replace("-", "_"))
    return bool(value) and not (name == "--label-column" and value == "label")
