-- scripts/lua/qwen3_tts.lua on a made-up checkpoint: the rows of docs/traps.md's prompt.
local M = {}

local cfg = {
    root = {tts_model_type = "custom_voice", tts_model_size = "1b7",
            tts_pad_token_id = 801, tts_bos_token_id = 802, tts_eos_token_id = 803},
    talker = {hidden_size = 8, num_code_groups = 4, vocab_size = 100, text_vocab_size = 1000,
              code_predictor_config = {vocab_size = 64},
              codec_pad_id = 48, codec_bos_id = 49, codec_think_id = 54, codec_nothink_id = 55,
              codec_think_bos_id = 56, codec_think_eos_id = 57,
              codec_language_id = {english = 60, chinese = 61, wu_dialect = 62},
              spk_id = {ann = 66, wu = 67}, spk_is_dialect = {ann = false, wu = "wu_dialect"}},
}
local tokens = {["<|im_start|>"] = 900, ["<|im_end|>"] = 901, assistant = 902, user = 903}

local function fixture(request, src)
    src = src or {}
    return {arch = "qwen3_tts_talker", cfg = cfg, tokens = tokens, request = request,
            fields = {"voice", "language", "instructions", "non_streaming_mode", "ref_text"},
            src = {text = request.text, xvec = src.xvec or false, ref = src.ref or false}}
end

function M.test_whole_text(t)
    t:eq(t:hook("qwen3_tts.prompt", fixture{text = "Hi", voice = "Ann", language = "English"}), [[
        talker.prompt  13 rows
        1  text[900]
        2  text[902]
        3  text[10]
        4  text[801] + codec[54]
        5  text[801] + codec[56]
        6  text[801] + codec[60]
        7  text[801] + codec[57]
        8  text[801] + codec[66]
        9  text[802] + codec[48]
        10  text[72] + codec[48]
        11  text[105] + codec[48]
        12  text[803] + codec[48]
        13  text[801] + codec[49]
        talker.feed  1 rows
        1  text[801]
        talker.feed  then in every step
        1  text[801]
    ]])
end

function M.test_text_that_streams(t)
    local rows = t:hook("qwen3_tts.prompt", fixture{text = "Hi!", voice = "ann", non_streaming_mode = false})
    t:eq(rows[5], "4  text[801] + codec[55]", "without a language there is no thinking")
    t:eq(rows[10], "9  text[72] + codec[49]", "the first token stands in the prompt")
    t:eq(rows[11], "talker.feed  3 rows")
    t:eq({rows[12], rows[13], rows[14]}, {"1  text[105]", "2  text[33]", "3  text[803]"})
end

function M.test_a_dialect_speaker_decides_the_language(t)
    local rows = t:hook("qwen3_tts.prompt", fixture{text = "Hi", voice = "wu"})
    t:eq(rows[7], "6  text[801] + codec[62]")
end

function M.test_rejections(t)
    local field, text = t:rejects("qwen3_tts.prompt", fixture{text = "Hi"})
    t:eq({field, text}, {"voice", "pick one of the model's voices"})
    t:eq(t:rejects("qwen3_tts.prompt", fixture{text = "Hi", voice = "ann", language = "wu_dialect"}),
         "language")
end

-- A checkpoint says which characters it can speak; the user hears of others, once each.
function M.test_characters_that_the_voice_cannot_speak(t)
    local function told(text, class)
        local f = fixture{text = text, voice = "ann"}
        if class then
            f.cfg = {talker = cfg.talker, root = {speakable = class}}
            for k, v in pairs(cfg.root) do f.cfg.root[k] = v end
        end
        local rows = t:hook("qwen3_tts.prompt", f)
        return re.match(rows[#rows], "^warning: .*")
    end
    local say = "warning: the voice cannot speak these characters of the text: "
    t:eq(told("a", "a-z"), nil)
    t:eq(told("\u{4F60}\u{597D} a1 a1\n", "a-z"), say .. "\u{4F60} \u{597D} 1")
    t:eq(told("Ab", "a-z"), say .. "A")
    t:eq(told("\u{4F60}"), nil, "a checkpoint without the key")
    t:eq(told("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "a-z"),
         say .. "A B C D E F G H I J K L M N O P Q R S T ...")
end

function M.test_reference_frames_are_muted(t)
    t:eq(t:hook("qwen3_tts.codes", {arch = "qwen3_tts_code2wav", src = {
        ref = {kind = "codes", count = 3, width = 4}, codes = {kind = "codes", open = true}}}), [[
        stage.codes  mute
        ref[1..3]
        stage.codes
        codes[1..]
    ]])
end

return M
