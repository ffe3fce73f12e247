"""Speech from a running `omni-graph serve qwen3_tts`, by the openai package's own client.

    pip install openai
    python examples/openai_speech.py "Good morning." hello.mp3

The format is that of the file's name: wav, flac, mp3, opus or pcm. pcm is streamed: 24 kHz,
16 bit, mono, written as it comes.
"""
import sys

from openai import OpenAI

text, path = sys.argv[1:3]
client = OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none")
kind = path.rsplit(".", 1)[-1]
ask = dict(model="qwen3_tts", voice="rms", input=text, response_format=kind)
if kind == "pcm":
    with client.audio.speech.with_streaming_response.create(
            **ask, extra_body={"stream": True, "stream_format": "audio"}) as answer:
        answer.stream_to_file(path)
else:
    client.audio.speech.create(**ask).write_to_file(path)
print(path)
