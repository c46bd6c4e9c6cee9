"""`python -m benchmarks.papers.attention_speed_gpu`: `attention_speed` on a GPU, at the papers' lengths and batches."""

from benchmarks.papers import attention_speed

BENCHMARK = attention_speed.benchmark(
    "attention_speed_gpu",
    "Speed and memory of the attentions on a GPU",
    __doc__,
    training=(1024, 2048, 3072, 4096),
    inference=(1024, 4096, 16384),
    batch=32,
)

if __name__ == "__main__":
    BENCHMARK.main()
