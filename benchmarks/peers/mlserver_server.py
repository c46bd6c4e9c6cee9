"""MLServer: one HTTP process with the adaptive batcher, one inference process per core."""

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.types import InferenceRequest, InferenceResponse

from benchmarks.peers.classifier import Classifier


class Imdb(MLModel):  # type: ignore[misc]  # not installed where types are checked
    """The model; configured by environment variables."""

    async def load(self) -> bool:
        """Load the model in an inference process."""
        self.classifier = Classifier()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Compute a batch; MLServer concatenates the inputs of several requests."""
        answers = self.classifier(StringCodec.decode_input(payload.inputs[0]))
        outputs = [
            StringCodec.encode_output("label", [answer["label"] for answer in answers]),
            NumpyCodec.encode_output("score", np.array([[answer["score"]] for answer in answers])),
        ]
        return InferenceResponse(model_name=self.name, outputs=outputs)
