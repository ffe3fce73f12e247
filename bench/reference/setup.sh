#!/bin/sh
# Install the PyTorch reference of Qwen3-TTS into a virtual environment, for bench/cpu.
#
#     bench/reference/setup.sh FOLDER
#
# About 0.9 GB to download and 2.3 GB on disk where the CUDA 13 libraries are on the machine
# already; else torch brings them, 5 GB more. Nothing of it is needed to build or to run
# omni-graph. Running it again over a finished folder changes nothing.
set -eu

if [ $# -ne 1 ] || [ "$1" = --help ]; then
    sed -n '2,9s/^# \{0,1\}//p' "$0"
    [ "${1-}" = --help ] && exit 0
    exit 2
fi
venv=$1
python=${PYTHON:-python3}

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
pip="$venv/bin/python -m pip install --quiet --disable-pip-version-check"

# The published wheels of torch for Linux are CUDA builds. Without a GPU they run as well,
# but do not load without the libraries, which weigh more than torch itself.
have() {
    ldconfig -p 2>/dev/null | grep -q "$1 "
}
if have libcudart.so.13 && have libcublas.so.13 && have libcudnn.so.9 && have libnccl.so.2
then
    $pip --no-deps torch==2.11.0
    $pip filelock typing-extensions sympy networkx jinja2 fsspec numpy==2.4.6
    $pip --no-deps nvidia-cufile nvidia-cusparselt-cu13==0.8.0 nvidia-nvshmem-cu13==3.4.5
else
    $pip torch==2.11.0 numpy==2.4.6
fi
# Imported by qwen_tts though nothing here uses them: torchaudio, sox, onnxruntime, librosa.
$pip --no-deps torchaudio==2.11.0 qwen-tts==0.1.1 sox==1.5.0 onnxruntime==1.32.0
$pip transformers==4.57.3 tokenizers==0.22.2 huggingface_hub==0.36.2 safetensors==0.8.0 \
    numpy==2.4.6 librosa==0.11.0 soundfile==0.14.0 einops==0.8.2 scipy==1.17.1

"$venv/bin/python" -c '
import torch, transformers, qwen_tts
print("torch", torch.__version__, "transformers", transformers.__version__, "ready")' 2>&1 |
    tail -n 1
