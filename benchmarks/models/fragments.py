"""`python -m benchmarks.models.fragments`: fragments of files by their type, against models of scikit-learn.

On Debian, downloads the packages in PACKAGES with `apt-get download` (620 MB) and reads the files in them, without
installing any. The type of a file is that of its suffix (TYPES), or `elf` by its first bytes; files of fewer than
4,608 bytes are left out. A fragment is 4,096 bytes from a random place after the first 512 bytes, so that no fragment
has a file's magic number; at most 4 of a file, which do not overlap, 80 of a source package and type, and 400 of a
type. All files of a source package are in the same split. The rivals are logistic regression on n-grams of bytes, and
gradient boosting on how often each byte occurs; their settings are chosen on folds of the training fragments, with
whole packages held out. Each result is recorded when its run ends; a restarted benchmark continues.
"""

import argparse
import functools
import hashlib
import heapq
import math
import random
import shutil
import subprocess
import tarfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import pyarrow
from numpy.typing import NDArray
from pyarrow import parquet
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
from tqdm import tqdm

from artifact.provenance import git_revision
from benchmarks.lib.benchmark import Benchmark
from benchmarks.lib.record import Data, Record, earlier, replacing
from benchmarks.lib.table import table
from benchmarks.models.long_documents import correct, digits, right_answers
from benchmarks.models.runs import folders_of, revisions, run_command
from model.data.own import DataFiles
from model.data.splits import folds, hold_out_groups
from model.runs.load import load_trained
from model.tasks.classification import ClassificationTask
from model.tasks.regression import regressions
from model.tasks.two_views import HAS_VECTOR_VIEW
from model.tasks.two_views import NGRAMS as CHOICE
from model.training.checkpoint import BEST

NAME = "fragments"
PACKAGES = """
advi aisleriot alsa-utils ansible-core ant arc-theme asterisk-core-sounds-en-wav asterisk-core-sounds-fr-wav
asymptote-doc bison blackbird-gtk-theme cacti calibre-bin cups-filters dblatex docbook-xsl dokuwiki erlang-doc
evolution-common extremetuxracer-data feynmf ffmpeg-doc fftw-dev fonts-comfortaa fonts-croscore fonts-dejavu-core
fonts-hosny-amiri fonts-kacst fonts-lato fonts-liberation fonts-liberation2 fonts-open-sans fonts-roboto-unhinted
fonts-sil-gentium fonts-texgyre freeciv-data freedroid-data frozen-bubble-data gettext gimp-data gnome-chess
gnucash-common greybird-gtk-theme groovy hevea info inkscape-tutorials iso-codes junit5 kanagram kde-config-gtk-style
khangman latex-cjk-common lbreakout2-data libbatik-java libbio-perl-perl libc6-dev libdatetime-timezone-perl
libdbix-class-perl libevent-dev libexpat1-dev libfftw3-dev libfop-java libfreetype-dev libgcc-12-dev libglib2.0-dev
libglib2.0-doc libgmp-dev libgnutls28-dev libgsl-dev libgtk-3-dev libgtksourceview-4-common libhdf5-dev
libhttpclient-java libicu-dev libjetty9-java libjs-bootstrap4 libjs-codemirror libjs-dojo-dijit libjs-jquery-ui
liblapack-dev liblucene8-java libmaven3-core-java libmojolicious-perl libmoose-perl libncurses-dev libnetty-java
libpcre2-dev libpython3.11-dev libreadline-dev libruby3.1 libsdl2-dev libssl-dev libsuitesparse-dev libtemplate-perl
libtomcat9-java libwww-perl libxerces2-java libxml2-dev lintian lmms-common lyx-common materia-gtk-theme minetest-data
node-lodash noweb numix-gtk-theme pari-doc php-doctrine-orm php-phpseclib php-symfony-http-foundation php-tcpdf
php-twig phpmyadmin pingus-data plymouth-themes puppet-agent python3-botocore python3-django python3-docutils
python3-jedi python3-networkx python3-nltk python3-pygments python3-sqlalchemy r-cran-ggplot2 r-cran-multcomp
r-cran-rcpp r-cran-survival r-cran-xts r-cran-zoo roundcube-core ruby-activerecord ruby-gtk3 ruby-mail ruby-nokogiri
ruby-rack ruby-rouge ruby-sequel scala-library shared-mime-info sound-icons sound-theme-freedesktop sphinx-common
sqlite3-doc tango-icon-theme texinfo texlive-latex-base texlive-latex-recommended texlive-pictures texlive-publishers
texlive-science tuxmath-data tuxpaint-data tuxtype-data util-linux wordpress xkb-data yaru-theme-gtk
"""
TYPES = {
    "ar": ".a",
    "c": ".c .h .cc .cpp .hpp",
    "css": ".css",
    "gz": ".gz",
    "html": ".html .htm",
    "jar": ".jar",
    "javascript": ".js",
    "jpeg": ".jpg .jpeg",
    "mo": ".mo",
    "ogg": ".ogg .oga",
    "pdf": ".pdf",
    "perl": ".pm .pl",
    "php": ".php",
    "png": ".png",
    "python": ".py",
    "ruby": ".rb",
    "svg": ".svg",
    "tex": ".tex .sty .cls .def",
    "ttf": ".ttf",
    "wav": ".wav",
    "xml": ".xml .gir .xsl",
}
"""Suffixes of the files of each type."""
ELF, ELF_MAGIC = "elf", b"\x7fELF"
OF_SUFFIX = {suffix: name for name, suffixes in TYPES.items() for suffix in suffixes.split()}
SIZE, SKIPPED = 4_096, 512
"""Bytes of a fragment, and bytes at the beginning of a file that no fragment has."""
PER_FILE, PER_SOURCE, PER_TYPE = 4, 80, 400
"""Maximum number of fragments of a file, of a source package and type, and of a type."""
Setting = tuple[float, ...]

NUM_NGRAMS = 65_536
"""Number of n-grams of the logistic regression, as many as ours."""
STRENGTHS: Sequence[Setting] = ((30.0,), (100.0,), (300.0,), (1_000.0,), (3_000.0,))
"""Values of C of logistic regression, of which folds choose."""
BOOSTING: Sequence[Setting] = ((0.1, 8, 150), (0.1, 16, 150))
"""Learning rates, leaves and iterations of gradient boosting, of which folds choose."""
LINEAR = "linear view"
SIZES = "model.ngram_view.sizes=[1, 2, 3, 4]"
OURS = {
    LINEAR: (
        "model.kind=bytes",
        SIZES,
        "model.ngram_view.tried=[]",
        "model.ngram_view.fold_case=false",
        "model.ngram_view.max_strength=3000",
    ),
}
"""Overrides of each of our models."""
SEEDS = 1
HELD_OUT = {"test": 0.3, "validation": 0.1}
"""Fraction of the fragments of each type in the splits besides training, about."""


class Fragment(NamedTuple):
    """A fragment of a file."""

    rank: bytes
    """Hash that orders fragments at random; all first fragments of files come before all second ones, and so on."""
    text: bytes
    place: str
    """Package, path in it and offset."""


Fragments = dict[tuple[str, str], list[Fragment]]
"""Fragments of each type and source package."""


def download(folder: Path) -> list[Path]:
    """Download the packages that a folder lacks; returns the files of all, in the order of their names."""
    folder.mkdir(parents=True, exist_ok=True)
    names = PACKAGES.split()
    missing = [name for name in names if not list(folder.glob(f"{name}_*.deb"))]
    if missing:
        subprocess.run(["apt-get", "download", *missing], cwd=folder, check=True)
    return [next(iter(sorted(folder.glob(f"{name}_*.deb")))) for name in sorted(names)]


def source_of(package: Path) -> str:
    """Name of the source package of a package."""
    command = ["dpkg-deb", "--show", "--showformat=${source:Package}", str(package)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def files_of(package: Path) -> Iterator[tuple[str, bytes]]:
    """Path and content of the regular files in a package that are long enough."""
    command = ["dpkg-deb", "--fsys-tarfile", str(package)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as process,
        tarfile.open(fileobj=process.stdout, mode="r|") as archive,
    ):
        for member in archive:
            if member.isfile() and member.size >= SKIPPED + SIZE:
                file = archive.extractfile(member)
                assert file is not None
                yield member.name, file.read()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)


def type_of(path: str, content: bytes) -> str | None:
    """Type of a file; None for no type of this benchmark."""
    suffix = PurePosixPath(path).suffix.lower()
    is_program = content.startswith(ELF_MAGIC) and suffix not in (".o", ".ko")
    return OF_SUFFIX.get(suffix, ELF if is_program else None)


def fragments_of(place: str, content: bytes) -> Iterator[Fragment]:
    """Fragments of a file at random offsets: each in a part of its own, of parts of equal length."""
    generator = random.Random(place)
    usable = len(content) - SKIPPED
    count = min(PER_FILE, usable // SIZE)
    part = usable // count
    starts = [SKIPPED + i * part + generator.randrange(part - SIZE + 1) for i in range(count)]
    generator.shuffle(starts)
    for number, start in enumerate(starts):
        where = f"{place}+{start}"
        rank = bytes([number]) + hashlib.sha256(where.encode()).digest()
        yield Fragment(rank, content[start : start + SIZE], where)


def collect(packages: Iterable[Path]) -> Fragments:
    """Fragments of the files in packages, at most PER_SOURCE of each type and source package; no two are the same."""
    found: defaultdict[tuple[str, str], list[Fragment]] = defaultdict(list)
    for package in packages:
        source, name = source_of(package), package.name.partition("_")[0]
        for path, content in files_of(package):
            if kind := type_of(path, content):
                key = kind, source
                found[key] += fragments_of(f"{name}:{path}", content)
                found[key] = heapq.nsmallest(PER_SOURCE, found[key])
    return without_copies(found)


def without_copies(found: Fragments) -> Fragments:
    """At most PER_TYPE fragments of each type, of different content."""
    known, kept = set[bytes](), Fragments()
    for kind in sorted({kind for kind, _ in found}):
        count = 0
        pool = sorted((one, source) for (its, source), some in found.items() if its == kind for one in some)
        for one, source in pool:
            if count < PER_TYPE and one.text not in known:
                known.add(one.text)
                kept.setdefault((kind, source), []).append(one)
                count += 1
    return kept


def split(found: Fragments) -> dict[str, str]:
    """Split of each source package."""
    labels: dict[str, list[str]] = {}
    for (kind, source), some in found.items():
        labels.setdefault(source, []).extend([kind] * len(some))
    splits = dict.fromkeys(labels, "train")
    for name, fraction in HELD_OUT.items():
        for source in hold_out_groups(labels, fraction, seed=0):
            splits[source] = name
            del labels[source]
    return splits


def write(found: Fragments, file: Path) -> None:
    """Write the fragments as a table that `python -m model train` reads, with their splits and source packages."""
    splits = split(found)
    rows = [
        {"text": one.text, "label": kind, "split": splits[source], "group": source, "place": one.place}
        for (kind, source), some in found.items()
        for one in some
    ]
    random.Random(0).shuffle(rows)
    with replacing(file) as partial:
        parquet.write_table(pyarrow.table({name: [row[name] for row in rows] for name in rows[0]}), partial)


class Part(NamedTuple):
    """The fragments of a split."""

    texts: list[bytes]
    labels: NDArray[np.int64]
    sources: NDArray[np.int64]
    """Number of the source package of each."""


def read_parts(file: Path) -> tuple[dict[str, Part], list[str]]:
    """The fragments of each split, and the names of the types."""
    columns = parquet.read_table(file).to_pydict()
    kinds, labels = np.unique(columns["label"], return_inverse=True)
    sources, parts = np.unique(columns["group"], return_inverse=True)[1], dict[str, Part]()
    for name in ("train", "validation", "test"):
        rows = [i for i, its in enumerate(columns["split"]) if its == name]
        parts[name] = Part([columns["text"][i] for i in rows], labels[rows], sources[rows])
    return parts, kinds.tolist()


def byte_counts(texts: Sequence[bytes]) -> NDArray[np.int64]:
    """How often each byte occurs in each text, (texts, 256)."""
    return np.stack([np.bincount(np.frombuffer(text, np.uint8), minlength=256) for text in texts])


def boosting(settings: Sequence[Setting], x: Any, labels: NDArray[np.int64], others: Any) -> Iterator[Any]:
    """Classes of others by gradient boosting, for each learning rate, number of leaves and number of iterations."""
    for rate, leaves, iterations in settings:
        model = HistGradientBoostingClassifier(
            learning_rate=rate,
            max_leaf_nodes=int(leaves),
            max_iter=int(iterations),
            max_features=0.3,
            early_stopping=False,
            random_state=0,
        )
        yield model.fit(x, labels).predict(others)


def ngram_counts(longest: int, texts: Sequence[bytes]) -> Any:
    """Counts of the n-grams of 1 to `longest` bytes in each text, in 2^22 buckets (texts, 2^22)."""
    vectorizer = HashingVectorizer(
        analyzer="char", ngram_range=(1, longest), lowercase=False, n_features=2**22, alternate_sign=False, norm=None
    )
    return vectorizer.transform([text.decode("latin-1") for text in texts])


def regression(settings: Sequence[Setting], x: Any, labels: NDArray[np.int64], others: Any) -> Iterator[Any]:
    """Classes of others by TF-IDF and logistic regression, for each C.

    An n-gram that occurs k times counts 1 + log k times. The n-grams are the NUM_NGRAMS in the most fragments: with
    all of up to 3 bytes, in 2^20 buckets, fewer held-out fragments of the training folds were classified correctly.
    """
    kept = np.sort(np.argsort(-x.getnnz(axis=0), kind="stable")[:NUM_NGRAMS])
    scaled = TfidfTransformer(sublinear_tf=True).fit(x[:, kept])
    of_others = scaled.transform(others[:, kept])
    for weights, bias in regressions(scaled.transform(x[:, kept]), labels, [strength for (strength,) in settings]):
        yield (of_others @ weights + bias).argmax(1)


class Rival(NamedTuple):
    """A model of scikit-learn."""

    name: str
    """Its settings, with `{}` for what folds choose."""
    features: Callable[[Sequence[bytes]], Any]
    classify: Callable[[Sequence[Setting], Any, NDArray[np.int64], Any], Iterator[Any]]
    """Settings, features and labels to fit on, and features of others -> classes of the others for each setting."""
    settings: Sequence[Setting]


RIVALS = {
    "byte n-grams, logistic regression": [
        Rival(f"1 to {longest} bytes, C={{:g}}", functools.partial(ngram_counts, longest), regression, STRENGTHS)
        for longest in (2, 3, 4)
    ],
    "byte histograms, gradient boosting": [
        Rival("rate {:g}, {} leaves, {} iterations", byte_counts, boosting, BOOSTING),
    ],
}


def rival(name: str, parts: dict[str, Part]) -> Data:
    """Choose a setting on folds of the training fragments, fit it to all and classify the test fragments."""
    train, test = parts["train"], parts["test"]
    found: list[tuple[float, Rival, Setting]] = []
    for one in tqdm(RIVALS[name], unit="rival", leave=False):
        x, right = one.features(train.texts), []
        for held_out in folds(train.labels, train.sources):
            rest = np.setdiff1d(np.arange(len(train.labels)), held_out)
            answers = one.classify(one.settings, x[rest], train.labels[rest], x[held_out])
            right.append([its == train.labels[held_out] for its in answers])
        shares = [float(share) for share in np.concatenate(right, axis=1).mean(1)]
        print([(one.name.format(*its), round(share, 4)) for its, share in zip(one.settings, shares, strict=True)])
        found += [(share, one, setting) for setting, share in zip(one.settings, shares, strict=True)]
    share, best, setting = max(found, key=lambda one: one[0])
    (classes,) = best.classify([setting], best.features(train.texts), train.labels, best.features(test.texts))
    return {"setting": best.name.format(*setting), "held_out": share, "correct": digits(classes == test.labels)}


def ours(overrides: Sequence[str], seed: int, folder: Path, file: Path, data_dir: Path) -> Data:
    """Train as on one's own documents, with their groups, and classify the test fragments. A run that ended remains."""
    run = folder / f"{NAME}-seed{seed}"
    if not (run / BEST).is_file():
        shutil.rmtree(run, ignore_errors=True)
        sets = [word for override in (*overrides, f"seed={seed}") for word in ("--set", override)]
        command = ("train", "--task", "text-classification", "--data", str(file), "--group-column", "group")
        run_command(*command, "--runs", str(folder), *sets, data_dir=data_dir, threads=1)
    best = load_trained(run, DataFiles(data=file))
    assert isinstance(best.task, ClassificationTask)
    choice = best.task.facts[CHOICE]
    setting = f"{choice['scaling']}, C={choice['strength']:g}{', vector view' * best.task.facts[HAS_VECTOR_VIEW]}"
    return {"setting": setting, "correct": digits(right_answers(best, best.data.test))}


def measure(args: argparse.Namespace) -> Iterator[Data]:
    """Make the fragments if there are none; measure the models that the record lacks."""
    folder = args.data_dir / NAME
    file = folder / f"{NAME}.parquet"
    if not file.is_file():
        write(collect(download(folder / "archives")), file)
    parts, kinds = read_parts(file)
    test = parts["test"]
    facts = {
        "digest": hashlib.sha256(b"".join(text for part in parts.values() for text in part.texts)).hexdigest(),
        "fragments": {
            kind: {name: int((part.labels == number).sum()) for name, part in parts.items()}
            for number, kind in enumerate(kinds)
        },
        "test_labels": test.labels.tolist(),
        "test_sources": test.sources.tolist(),
    }
    print(facts["fragments"], flush=True)
    before = earlier(NAME, args.out)
    runs: list[Data] = before.get("runs", []) if before.get("digest") == facts["digest"] else []
    done = {(run["model"], run["seed"]) for run in runs}
    wanted = [(name, 0) for name in RIVALS] + [(name, seed) for seed in range(SEEDS) for name in OURS]
    for name, seed in tqdm([key for key in wanted if key not in done], unit="run"):
        if name in RIVALS:
            found = rival(name, parts)
        else:
            found = ours(OURS[name], seed, args.runs / name.replace(" ", "-"), file, args.data_dir)
        runs.append({"model": name, "seed": seed, "revision": git_revision(), **found})
        yield {**facts, "runs": runs}


def gain(first: Data, second: Data, sources: Sequence[int]) -> tuple[float, float]:
    """Difference of two accuracies in points, and its standard error over source packages."""
    differences = 100 * (correct(first) - correct(second))
    mean, source = float(differences.mean()), np.unique(sources, return_inverse=True)[1]
    sums = np.bincount(source, differences - mean)
    return mean, math.sqrt(len(sums) / (len(sums) - 1) * float((sums**2).sum())) / len(differences)


def report(record: Record) -> str:
    """Report: accuracy of all models, and the accuracy on each type."""
    runs, labels, sources = (record.data[name] for name in ("runs", "test_labels", "test_sources"))
    rivals = [run for run in runs if run["model"] in RIVALS]
    best = max(rivals, key=lambda run: float(correct(run).mean()))
    rows = []
    for run in runs:
        difference, error = gain(run, best, sources)
        less = "" if run is best else f"{difference:+.1f} ± {error:.1f}"
        rows.append([run["model"], run["setting"], f"{100 * correct(run).mean():.2f}", less])
    of_type = [
        [kind, *map(str, counts.values()), *(f"{100 * correct(run)[np.array(labels) == i].mean():.0f}" for run in runs)]
        for i, (kind, counts) in enumerate(record.data["fragments"].items())
    ]
    names = [run["model"] for run in runs]
    return "\n".join(
        [
            f"Accuracy on {len(labels):,} test fragments of {len(record.data['fragments'])} types of files, in %. The "
            "difference to the best rival is in points, ± its standard error over the "
            f"{len(set(sources))} source packages of the test fragments.",
            "",
            table(["model", "setting", "accuracy", "less the best rival"], rows, left=2),
            "Number of fragments of each type in the splits, and accuracy on its test fragments:",
            "",
            table(["type", "training", "validation", "test", *names], of_type),
            revisions(runs),
        ]
    )


BENCHMARK = Benchmark.of(
    "Fragments of files", measure, report, None, folders_of(NAME), ("torch", "numpy", "scikit-learn")
)

if __name__ == "__main__":
    BENCHMARK.main()
