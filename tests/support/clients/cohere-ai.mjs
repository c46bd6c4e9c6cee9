// Rankings by `cohere-ai` for JavaScript.
import { CohereClient, CohereClientV2 } from "cohere-ai";

const query = "A parser of trees";
const documents = ["Speech recognition", "Dependency parsing"];

const version1 = new CohereClient({ token: "...", environment: "http://localhost:8000" });
const version2 = new CohereClientV2({ token: "...", environment: "http://localhost:8000" });
const ranking = {};
for (const [name, client] of Object.entries({ "version 1": version1, "version 2": version2 })) {
  const answer = await client.rerank({ model: "aan", query, documents });
  ranking[name] = answer.results.map((result) => [documents[result.index], result.relevanceScore]);
}
const unknown = await version2.rerank({ model: "none", query, documents }).catch((error) => error.body.message);
console.log(JSON.stringify({ ranking, "unknown model": { "version 2": unknown } }));
