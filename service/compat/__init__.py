"""HTTP APIs of other servers, as thin adapters: Open Inference Protocol, KServe, TEI, OpenAI."""
