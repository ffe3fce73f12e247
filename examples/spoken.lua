-- The prompt of Qwen3-TTS for a text whose numbers and abbreviations are words.
local tts, normalise = use "qwen3_tts", use "normalise"
local M = {}

function M.prompt(ctx, src)
    local r = ctx.request
    local prompt, feed, fill = tts.rows(ctx, {text = normalise.english(src.text), voice = r.voice,
                                              language = r.language, instructions = r.instructions,
                                              non_streaming_mode = r.non_streaming_mode})
    ctx:emit{prompt = prompt, feed = feed, fill = fill}
end

return M
