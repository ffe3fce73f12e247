-- English text as it is spoken: numbers, ordinals, years, money, times, units, abbreviations.
-- A library for hooks of any pipeline: local normalise = use "normalise"
--     normalise.english("Dr. Lee paid $3.50 at 9:05.")
--         --> "Doctor Lee paid three dollars and fifty cents at nine oh five."
-- What it does not know it leaves as it is; it never fails on a string.
local M = {}

local ONES = {[0] = "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
              "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen",
              "eighteen", "nineteen"}
local TENS = {"ten", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"}
local SCALES = {"thousand", "million", "billion", "trillion"}
local ORDINALS = {one = "first", two = "second", three = "third", five = "fifth", eight = "eighth",
                  nine = "ninth", twelve = "twelfth"}

-- ---- numbers as words -------------------------------------------------------------

local function below_hundred(n)
    if n < 20 then return ONES[n] end
    local s = TENS[n // 10]
    return n % 10 == 0 and s or s .. "-" .. ONES[n % 10]
end

local function below_thousand(n)
    if n < 100 then return below_hundred(n) end
    local s = ONES[n // 100] .. " hundred"
    return n % 100 == 0 and s or s .. " " .. below_hundred(n % 100)
end

-- "0407" -> "zero four zero seven".
function M.digits(s)
    local out = {}
    for d in re.gmatch(s, "[0-9]") do out[#out + 1] = ONES[tonumber(d)] end
    return table.concat(out, " ")
end

-- A whole number, or its digits as text; more than 15 digits are read one by one.
function M.cardinal(n)
    if type(n) == "string" then
        n = re.gsub(n, ",", "")
        if #n > 15 then return M.digits(n) end
        n = tonumber(n)
    end
    if n < 0 then return "minus " .. M.cardinal(-n) end
    if n < 1000 then return below_thousand(n) end
    local parts, scale = {}, 0
    while n > 0 do
        if n % 1000 > 0 then
            local s = below_thousand(n % 1000)
            table.insert(parts, 1, scale > 0 and s .. " " .. SCALES[scale] or s)
        end
        n, scale = n // 1000, scale + 1
    end
    return table.concat(parts, " ")
end

function M.ordinal(n)
    local s = M.cardinal(n)
    local head, last = re.match(s, "^(.*[ -])?([a-z]+)$")
    if ORDINALS[last] then last = ORDINALS[last]
    elseif string.sub(last, -1) == "y" then last = string.sub(last, 1, -2) .. "ieth"
    else last = last .. "th" end
    return (head or "") .. last
end

-- 1100 to 2099 by pairs of digits, other numbers as they are.
function M.year(n)
    local high, low = n // 100, n % 100
    if high < 11 or high > 20 or (high == 20 and low < 10) then return M.cardinal(n) end
    if low == 0 then return below_hundred(high) .. " hundred" end
    return below_hundred(high) .. (low < 10 and " oh " or " ") .. below_hundred(low)
end

-- "1,234.50" -> words; the digits behind the point one by one.
function M.number(s)
    local whole, rest = re.match(s, [[^([0-9,]*)(?:\.([0-9]+))?$]])
    if not whole then return s end
    if whole == "" then return rest and "point " .. M.digits(rest) or s end
    local padded = #whole > 1 and string.sub(whole, 1, 1) == "0"
    local words = padded and M.digits(whole) or M.cardinal(whole)
    return rest and words .. " point " .. M.digits(rest) or words
end

-- ---- abbreviations ----------------------------------------------------------------

-- Titles stand before a name. The dots of INSIDE never end a sentence, those of LAST may.
local TITLES = {Mr = "Mister", Mrs = "Missus", Ms = "Miz", Dr = "Doctor", Prof = "Professor",
                Gen = "General", Sgt = "Sergeant", Capt = "Captain", Rev = "Reverend",
                St = "Saint", Mt = "Mount"}
local INSIDE = {["e.g."] = "for example", ["i.e."] = "that is", ["vs."] = "versus",
                ["approx."] = "approximately", ["est."] = "established"}
local LAST = {["etc."] = "et cetera", ["dept."] = "department", ["Jr."] = "Junior",
              ["Sr."] = "Senior", ["Ave."] = "Avenue", ["Rd."] = "Road",
              ["Blvd."] = "Boulevard", ["St."] = "Street",
              ["Ltd."] = "Limited", ["Inc."] = "Incorporated", ["Corp."] = "Corporation"}
local ABBREVIATION = [[(?<![\w.])((?:e\.g|i\.e|vs|approx|est|etc|dept|Jr|Sr|Ave|Rd|Blvd|]] ..
                     [[St|Ltd|Inc|Corp)\.)(\s*$|\s+[A-Z])?]]

local function abbreviations(s)
    s = re.gsub(s, [[\b(Mrs?|Ms|Dr|Prof|Gen|Sgt|Capt|Rev|St|Mt)\.(?=\s+[A-Z])]], TITLES)
    s = re.gsub(s, [[\bNo\.\s*(?=[0-9])]], "number ")
    s = re.gsub(s, [[#(?=[0-9])]], "number ")
    return (re.gsub(s, ABBREVIATION, function(word, behind)
        if LAST[word] then return LAST[word] .. (behind and "." .. behind or "") end
        return INSIDE[word] and INSIDE[word] .. (behind or "")
    end))
end

-- ---- money ------------------------------------------------------------------------

local COINS = {["$"] = {"dollar", "dollars", "cent", "cents"},
               ["€"] = {"euro", "euros", "cent", "cents"},
               ["£"] = {"pound", "pounds", "penny", "pence"}, ["¥"] = {"yen", "yen"}}
local AMOUNT = [[([$€£¥])\s?([0-9]+(?:,[0-9]{3})*)(?:\.([0-9]+))?]] ..
               [[(?:\s(thousand|million|billion|trillion)\b)?]]

local function count(n, one, many)
    return M.cardinal(n) .. " " .. (re.match(n, "^0*1$") and one or many)
end

local function money(sign, whole, cents, scale)
    local c = COINS[sign]
    local amount = cents and whole .. "." .. cents or whole
    if scale then return M.number(amount) .. " " .. scale .. " " .. c[2] end
    if cents and (not c[3] or #cents ~= 2) then return M.number(amount) .. " " .. c[2] end
    if not cents or cents == "00" then return count(whole, c[1], c[2]) end
    if re.match(whole, "^0+$") then return count(cents, c[3], c[4]) end
    return count(whole, c[1], c[2]) .. " and " .. count(cents, c[3], c[4])
end

local function currency(s) return (re.gsub(s, AMOUNT, money)) end

-- ---- times ------------------------------------------------------------------------

local function clock(hour, minute, half)
    local h, m = tonumber(hour), tonumber(minute)
    if h > 24 or m > 59 then return nil end
    local words = below_hundred(h)
    if m > 0 then words = words .. (m < 10 and " oh " or " ") .. below_hundred(m)
    elseif not half then words = words .. (h >= 1 and h <= 12 and " o'clock" or " hundred") end
    if half then words = words .. " " .. string.lower(half) .. " m" end
    return words
end

local function times(s)
    local half = [[(?:\s?([AaPp])(?:\.[Mm]\.|[Mm]\b))]]
    s = re.gsub(s, [[\b([0-9]{1,2}):([0-9]{2})\b(?!:)]] .. half .. "?", clock)
    return (re.gsub(s, [[\b([0-9]{1,2})]] .. half, function(h, x)
        return tonumber(h) <= 12 and clock(h, "0", x) or nil
    end))
end

-- ---- what else has digits ---------------------------------------------------------

local UNITS = {km = "kilometre", m = "metre", cm = "centimetre", mm = "millimetre", kg = "kilogram",
               g = "gram", mg = "milligram", ml = "millilitre", lb = "pound", lbs = "pound",
               mi = "mile", min = "minute", h = "hour", ms = "millisecond",
               Hz = "hertz", kHz = "kilohertz",
               GB = "gigabyte", MB = "megabyte", kB = "kilobyte", mph = "mile per hour",
               ["km/h"] = "kilometre per hour"}

local function unit(n, name)
    local one = UNITS[name]
    if re.match(name, "Hz$") or n == "1" then return n .. " " .. one end
    local head, per = re.match(one, "^(\\w+)( per .*)$")
    return n .. " " .. (head and head .. "s" .. per or one .. "s")
end

local FRACTIONS = {["1/2"] = "one half", ["1/3"] = "one third", ["2/3"] = "two thirds",
                   ["1/4"] = "one quarter", ["3/4"] = "three quarters"}
local MEASURE = [[\b([0-9][0-9.,]*)\s?]] ..
                [[(km/h|kHz|Hz|km|cm|mm|kg|mg|ml|mph|min|lbs?|mi|ms|GB|MB|kB|m|g|h)\b]]
local MONTH = "January|February|March|April|May|June|July|August|September|October|November|" ..
              "December"
local YEAR_BEHIND = [[\b((?:in|since|from|until|till|by|before|after|during|year|]] .. MONTH ..
                    [[)\s+(?:[0-9]{1,2}(?:st|nd|rd|th)?,\s+)?)]] ..
                    [[(1[1-9][0-9]{2}|20[0-9]{2})\b(?![,.]?[0-9])]]
local SCALE_NAMES = {C = " Celsius", F = " Fahrenheit"}

local function plural(words)
    if string.sub(words, -1) == "y" then return string.sub(words, 1, -2) .. "ies" end
    return words .. (re.match(words, "x$") and "es" or "s")
end

local function numbers(s)
    s = re.gsub(s, [[\b([0-9]{3,4})s\b]], function(y) return plural(M.year(tonumber(y))) end)
    s = re.gsub(s, YEAR_BEHIND, function(before, y) return before .. M.year(tonumber(y)) end)
    s = re.gsub(s, [[(?<![\w.,/])([123]/[234])(?![\w/])]], FRACTIONS)
    s = re.gsub(s, [[\b([0-9]{1,12})(?:st|nd|rd|th)\b]], function(n)
        return M.ordinal(tonumber(n))
    end)
    s = re.gsub(s, MEASURE, unit)
    s = re.gsub(s, [[([0-9])\s?%]], "$1 percent")
    s = re.gsub(s, [[([0-9])\s?°\s?([CF])?\b]], function(n, scale)
        return n .. " degrees" .. (SCALE_NAMES[scale] or "")
    end)
    s = re.gsub(s, [[\b([0-9]{3})-([0-9]{4})\b]], function(a, b)
        return M.digits(a) .. ", " .. M.digits(b)
    end)
    s = re.gsub(s, [[\b([0-9]{1,4})\s?[-–]\s?(?=[0-9]{1,4}\b)]], "$1 to ")
    s = re.gsub(s, [[(?<![\w)])[-−](?=[0-9])]], "minus ")
    s = re.gsub(s, [[([0-9])(?=[A-Za-z])]], "$1 ")
    s = re.gsub(s, [[(?<=[A-Za-z])([0-9])]], " $1")
    return (re.gsub(s, [[(?:[0-9]+(?:,[0-9]{3})*|(?<![0-9]))(?:\.[0-9]+)?(?<=[0-9])]], M.number))
end

-- ---- the whole --------------------------------------------------------------------

-- Typographic marks as plain ones; a dash between words becomes a pause.
local MARKS = {["‘"] = "'", ["’"] = "'", ["“"] = "", ["”"] = "", ['"'] = "", ["…"] = "...",
               ["("] = ", ", [")"] = ","}

local function marks(s)
    s = re.gsub(s, [[(?<=[A-Za-z.,])\s*[—–]\s*(?=[A-Za-z])]], ", ")
    s = re.gsub(s, "[‘’“”\"…()]", MARKS)
    s = re.gsub(s, [[(\s*,)+(?=\s|$|[.?!;:,])]], ",")
    return (re.gsub(s, [[^,\s*|,\s*(?=[.?!;:]|$)]], ""))
end

function M.english(s)
    s = abbreviations(s)
    s = currency(s)
    s = times(s)
    s = numbers(s)
    s = re.gsub(s, [[\s&\s]], " and ")
    return marks((re.gsub(s, [[(?<=\w)@(?=\w)]], " at ")))
end

return M
