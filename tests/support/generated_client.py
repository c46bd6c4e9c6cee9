"""Calls a server by a client that openapi-python-client generated; a program for its interpreter, without our packages.

The client is the package `generated`. Arguments: the URL of the server. Writes what the client returned, as JSON.
"""

import json
import sys

from generated import Client
from generated.api.classify_documents_and_series import classify
from generated.api.forecast_time_series import forecast
from generated.api.score_and_rank_documents import rank, score
from generated.models import (
    ClassifyRequest,
    ForecastRequest,
    ForecastRequestSeriesType0,
    RankRequest,
    ScoreOnOverflow,
    ScoreRequest,
)

QUERY = "A parser of trees"
DOCUMENTS = ["Speech recognition", "Dependency parsing"]

client = Client(base_url=sys.argv[1], raise_on_unexpected_status=True)
series = ForecastRequestSeriesType0.from_dict({"sales": [12.0, 9.0, None, 11.0, 15.0]})
pairs = ScoreRequest(pairs=[[QUERY, document] for document in DOCUMENTS])
request = ForecastRequest(model="any-series", series=series, horizon=2, quantiles=[0.1, 0.9])
answers = {
    "classify": classify.sync(client=client, body=ClassifyRequest(inputs="A film to see twice."), top_k=1, detail=True),
    "refused": classify.sync(client=client, body=ClassifyRequest(inputs="a", top_k=1), top_k=2),
    "score": score.sync(client=client, body=pairs, on_overflow=ScoreOnOverflow.HEAD),
    "rank": rank.sync(client=client, body=RankRequest(query=QUERY, documents=DOCUMENTS, return_documents=True)),
    "forecast": forecast.sync(client=client, body=request),
}
json.dump({name: answer.to_dict() for name, answer in answers.items()}, sys.stdout)
