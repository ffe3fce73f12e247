"""Time the public PyTorch implementation of Qwen3-TTS on the CPU, with random weights.

Beside bench/tts.c: the same config, the same numbers of requests at once and frames, greedy,
bf16. What is timed is the language model part, from one talker pass to the next; decoding the
codec is timed by itself. setup.sh installs what it needs.

    OMP_WAIT_POLICY=PASSIVE tts_cpu.py --model bench/configs/qwen3_tts_0b6 -o reference.json
"""
import argparse
import json
import os
import resource
import statistics
import sys
import time

PROMPT = list(range(20, 20 + 3 + 10 + 5))  # role, ten bytes of text, the closing five


def parse():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--model", required=True, help="folder with the configs")
    p.add_argument("--requests", default="1,4,8", help="how many at a time (1,4,8)")
    p.add_argument("--frames", default="12,8,6", help="of each; the last repeats (12,8,6)")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    p.add_argument("--codec-frames", type=int, default=12, help="0: leave the codec out")
    p.add_argument("--beside", help="JSON of bench/tts of the same run: prints the ratios")
    p.add_argument("-o", dest="out", help="the numbers as JSON")
    a = p.parse_args()
    a.requests = [int(x) for x in a.requests.split(",")]
    a.frames = [int(x) for x in a.frames.split(",")]
    a.frames += a.frames[-1:] * (len(a.requests) - len(a.frames))
    return a


ARGS = parse()
# Waiting threads that spin take the cores from those that work. OpenMP reads it on loading.
if os.environ.get("OMP_WAIT_POLICY", "").upper() != "PASSIVE":
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.execv(sys.executable, [sys.executable] + sys.argv)
os.environ["OMP_NUM_THREADS"] = str(ARGS.threads)
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch  # noqa: E402
import transformers  # noqa: E402
from qwen_tts.core import Qwen3TTSTokenizerV2Config, Qwen3TTSTokenizerV2Model  # noqa: E402
from qwen_tts.core.models import Qwen3TTSConfig, Qwen3TTSForConditionalGeneration  # noqa: E402


def build():
    with open(os.path.join(ARGS.model, "config.json")) as f:
        config = json.load(f)
    for key in ("architectures", "model_type", "torch_dtype", "transformers_version"):
        config.pop(key, None)
    torch.set_default_dtype(getattr(torch, ARGS.dtype))
    try:
        return Qwen3TTSForConditionalGeneration(Qwen3TTSConfig(**config)).eval()
    finally:
        torch.set_default_dtype(torch.float32)


def run(model, requests, frames):
    """Seconds between the starts of talker passes after the prompt's, and CPU seconds."""
    marks, forward = [], model.talker.model.forward

    def marked(*args, **kwargs):
        marks.append((time.perf_counter(), time.process_time()))
        return forward(*args, **kwargs)

    model.talker.model.forward = marked
    start = time.perf_counter()
    ids = [torch.tensor([PROMPT]) for _ in range(requests)]
    try:
        model.generate(
            input_ids=ids, instruct_ids=[None] * requests, languages=["english"] * requests,
            speakers=["ryan"] * requests, non_streaming_mode=True, do_sample=False,
            subtalker_dosample=False, repetition_penalty=1.05, max_new_tokens=frames + 1,
            eos_token_id=3071)  # an id that is always suppressed: no early end
    finally:
        model.talker.model.forward = forward
    wall = time.perf_counter() - start
    pairs = list(zip(marks[1:], marks[2:]))
    return wall, [b[0] - a[0] for a, b in pairs], [b[1] - a[1] for a, b in pairs]


def codec_seconds(frames):
    with open(os.path.join(ARGS.model, "speech_tokenizer", "config.json")) as f:
        config = json.load(f)
    net = Qwen3TTSTokenizerV2Model(Qwen3TTSTokenizerV2Config(
        decoder_config=config["decoder_config"], encoder_config={"_frame_rate": 12.5}))
    codes = torch.randint(0, 2048, (1, 16, frames))
    times = []
    for _ in range(2):
        start = time.perf_counter()
        net.eval().decoder.chunked_decode(codes)
        times.append(time.perf_counter() - start)
    return min(times) / frames


def print_ratios(rounds):
    with open(ARGS.beside) as f:
        ours = {r["requests"]: r["decode_step_ms"] for r in json.load(f)["rounds"]}
    for r in rounds:
        if ours.get(r["requests"]):
            ratio = r["decode_step_ms"] / ours[r["requests"]]
            print(f"omni-graph's decode step at {r['requests']}: {ratio:.2f} times as fast")


@torch.inference_mode()
def main():
    torch.set_num_threads(ARGS.threads)
    torch.manual_seed(0)
    model = build()
    run(model, 1, 2)
    rounds = []
    print(f"PyTorch {torch.__version__}, transformers {transformers.__version__}, {ARGS.dtype}, "
          f"{ARGS.threads} threads, {ARGS.model}")
    print("requests frames   step ms   best    CPU  frames/s   RTF")
    for n, frames in zip(ARGS.requests, ARGS.frames):
        wall, steps, cpu = run(model, n, frames)
        step = statistics.median(steps)
        rounds.append({
            "requests": n, "frames": frames, "decode_step_ms": step * 1e3,
            "decode_step_best_ms": min(steps) * 1e3,
            "decode_step_cpu_ms": statistics.median(cpu) * 1e3,
            "frames_per_s_codes": n / step, "rtf_codes": step / 0.08, "wall_s": wall})
        print(f"{n:8d} {frames:6d}  {step * 1e3:8.1f} {min(steps) * 1e3:6.1f} "
              f"{statistics.median(cpu) * 1e3:6.1f}  {n / step:8.2f} {step / 0.08:5.2f}",
              flush=True)
    report = {"program": "PyTorch reference", "torch": torch.__version__, "model": ARGS.model,
              "dtype": ARGS.dtype, "threads": ARGS.threads, "load": os.getloadavg()[0],
              "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1.024e-3,
              "rounds": rounds}
    if ARGS.codec_frames:
        del model
        report["vocoder_ms_per_frame"] = codec_seconds(ARGS.codec_frames) * 1e3
        print(f"codec decode, float32, {ARGS.codec_frames} frames at once: "
              f"{report['vocoder_ms_per_frame']:.1f} ms a frame")
    print(f"peak memory {report['peak_rss_mb']:.0f} MB")
    if ARGS.beside:
        print_ratios(rounds)
    if ARGS.out:
        with open(ARGS.out, "w") as f:
            json.dump(report, f, indent=1)


main()
