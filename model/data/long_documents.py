"""Long documents: US Supreme Court oral arguments by issue area, UN General Debate speeches by region."""

from model.data.lines import TRAIN_VALIDATION_TEST, LabelledLines

SCOTUS = LabelledLines(
    file="scotus-oral-arguments.jsonl.xz",
    labels=[
        *("Civil Rights", "Criminal Procedure", "Due Process", "Economic Activity", "Federal Taxation", "Federalism"),
        *("First Amendment", "Judicial Power", "Unions"),
    ],
    terms="US Supreme Court oral arguments (Oyez): CC BY-NC 4.0, non-commercial. Issue areas of the Supreme Court "
    "Database, 2024 release 01 (H. Spaeth, L. Epstein et al.): non-commercial.",
    splits=TRAIN_VALIDATION_TEST,
    group_key="term",
    non_commercial=True,
)

_UN_FILE = "un-general-debate.jsonl.xz"
_UN_LABELS = [
    *("Caribbean", "Central America", "Eastern Africa", "Eastern Asia", "Eastern Europe", "Middle Africa"),
    *("Northern Africa", "Northern Europe", "South America", "South-eastern Asia", "Southern Africa"),
    *("Southern Asia", "Southern Europe", "Western Africa", "Western Asia", "Western Europe"),
]
_UN_TERMS = (
    "United Nations General Debate Corpus (S. Jankin, A. Baturo, N. Dasandi, Harvard Dataverse 10.7910/DVN/0TJX8Y): "
    "CC0; authors ask for citation."
)
UN_DEBATE = LabelledLines(_UN_FILE, _UN_LABELS, _UN_TERMS, TRAIN_VALIDATION_TEST, group_key="year")
UN_DEBATE_COUNTRY = LabelledLines(_UN_FILE, _UN_LABELS, _UN_TERMS, TRAIN_VALIDATION_TEST, "split_country", "country")
