// Vectors and names of models by `openai` for JavaScript.
import OpenAI from "openai";

const documents = ["Speech recognition", "Dependency parsing"];

const client = new OpenAI({ baseURL: "http://localhost:8000/v1", apiKey: "..." });
const answer = await client.embeddings.create({ model: "aan", input: documents });
const models = [];
for await (const model of client.models.list()) models.push(model.id);
const unknown = await client.embeddings.create({ model: "none", input: documents }).catch((error) => error.message);
console.log(
  JSON.stringify({
    vectors: { default: answer.data.map((entry) => entry.embedding) },
    models: { list: models },
    model: { retrieve: (await client.models.retrieve("aan")).id },
    "unknown model": { embeddings: unknown },
  }),
);
