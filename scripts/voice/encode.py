"""The codes of all that the teacher said: WORK/front.pt and WORK/speech make WORK/codes.npz."""
import numpy as np
import torch

from codec_net import FRAME, Decoder, Encoder
from common import Speech, arguments, device

a = arguments(__doc__, longest=150)
encoder, decoder = Encoder().to(device).eval(), Decoder().to(device).eval()
front = torch.load(a.work + "/front.pt", map_location=device)
encoder.load_state_dict(front["encoder"])
decoder.load_state_dict(front["decoder"])
speech = Speech(a.work)
frames = -(-speech.length // FRAME)
order = np.argsort(frames, kind="stable")
order = order[frames[order] <= a.longest]
codes = [None] * len(frames)
with torch.no_grad():
    for at in range(0, len(order), 256):
        b = order[at:at + 256]
        n = int(frames[b].max())
        span = torch.arange(n * FRAME, device=device)[None]
        offset, length = (torch.from_numpy(v[b]).to(device)[:, None]
                          for v in (speech.offset, speech.length))
        x = speech.wave[(offset + span).clamp(max=speech.wave.numel() - 1)].float() / 32768
        c = decoder.quantizer(encoder(x * (span < length)))[1].to(torch.uint8).cpu().numpy()
        for j, k in enumerate(b):
            codes[k] = c[j, :, :frames[k]].T
keep = np.sort(order)
np.savez(a.work + "/codes.npz", line=speech.line[keep], speaker=speech.speaker[keep],
         frames=frames[keep], codes=np.concatenate([codes[k] for k in keep]))
print(f"encode: {speech.told()}; {len(keep)} kept, {frames[keep].sum()} frames", flush=True)
