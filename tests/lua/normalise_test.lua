-- scripts/lua/normalise.lua: each line of a case list is what is written, what is said.
local normalise = use "normalise"
local M = {}

local function all(t, cases)
    for _, c in ipairs(cases) do t:eq(normalise.english(c[1]), c[2], c[1]) end
end

function M.test_cardinals(t)
    all(t, {
        {"0 and 7 and 13", "zero and seven and thirteen"},
        {"I have 21 cats.", "I have twenty-one cats."},
        {"300 of 999", "three hundred of nine hundred ninety-nine"},
        {"1,000 and 1000000", "one thousand and one million"},
        {"1,234,567", "one million two hundred thirty-four thousand five hundred sixty-seven"},
        {"12345678901234567890", "one two three four five six seven eight nine zero one two " ..
            "three four five six seven eight nine zero"},
        {"agent 007", "agent zero zero seven"},
        {"It was -5, then 3.14.", "It was minus five, then three point one four."},
        {"only .5", "only point five"},
        {"a 2-1 win, pages 10-12", "a two to one win, pages ten to twelve"},
        {"an MP3 on floor 3B", "an MP three on floor three B"},
        {"Well, 40.", "Well, forty."},
    })
end

function M.test_ordinals_and_years(t)
    all(t, {
        {"the 1st, 2nd, 3rd and 4th", "the first, second, third and fourth"},
        {"her 20th and 21st", "her twentieth and twenty-first"},
        {"the 112th", "the one hundred twelfth"},
        {"in 1984", "in nineteen eighty-four"},
        {"since 2005, until 2019", "since two thousand five, until twenty nineteen"},
        {"in 1905 and in 1900", "in nineteen oh five and in nineteen hundred"},
        {"on May 5th, 1821", "on May fifth, eighteen twenty-one"},
        {"1984 people", "one thousand nine hundred eighty-four people"},
        {"the 1990s", "the nineteen nineties"},
        {"half is 1/2, then 3/4", "half is one half, then three quarters"},
    })
end

function M.test_money(t)
    all(t, {
        {"$1", "one dollar"},
        {"$12.50", "twelve dollars and fifty cents"},
        {"$0.01", "one cent"},
        {"£1.01, €2.00", "one pound and one penny, two euros"},
        {"$3.2 million", "three point two million dollars"},
        {"¥1,000", "one thousand yen"},
        {"It costs $5.", "It costs five dollars."},
    })
end

function M.test_times(t)
    all(t, {
        {"at 10:30", "at ten thirty"},
        {"at 9:05 am", "at nine oh five a m"},
        {"at 10:00", "at ten o'clock"},
        {"at 5 p.m. sharp", "at five p m sharp"},
        {"14:45 and 25:70", "fourteen forty-five and twenty-five:seventy"},
    })
end

function M.test_abbreviations(t)
    all(t, {
        {"Dr. Lee and Mrs. Ray", "Doctor Lee and Missus Ray"},
        {"on Main St. near St. Paul", "on Main Street near Saint Paul"},
        {"cats, dogs, etc.", "cats, dogs, et cetera."},
        {"fruit, e.g. apples", "fruit, for example apples"},
        {"No. 5 & #6", "number five and number six"},
        {"etc. and so on", "et cetera and so on"},
        {"ann@home", "ann at home"},
    })
end

function M.test_units(t)
    all(t, {
        {"5 km or 1 kg", "five kilometres or one kilogram"},
        {"50% off", "fifty percent off"},
        {"-3 °C", "minus three degrees Celsius"},
        {"60 mph", "sixty miles per hour"},
        {"440 Hz", "four hundred forty hertz"},
    })
end

function M.test_typographic_marks(t)
    all(t, {
        {"“Don’t go”, he said — not now…", "Don't go, he said, not now..."},
        {"It is (about) 5–6 km (3 mi).", "It is, about, five to six kilometres, three miles."},
        {"(One) and (two)", "One, and, two"},
    })
end

function M.test_leaves_the_rest_alone(t)
    local same = {"", "Hello, world.", "naïve café", "no digits: a.b, c/d", "日本語"}
    for _, s in ipairs(same) do t:eq(normalise.english(s), s) end
end

return M
