---@meta
-- The hook API for lua-language-server: types only, never run. Reference: docs/hooks.md.
-- In .luarc.json: {"runtime.version": "Lua 5.4", "workspace.library": ["scripts/lua"]}

---A sequence of tokens, code frames or vectors. Immutable; only ids can be read.
---@class omni.Seq
---@field grid number[]? {t, h, w [, seconds]} that the encoder said of the item
---@field open boolean whether it is a stream whose end is not known
---@field [integer] integer ids only: the token at a position, nil beyond the end
---@operator len: integer
---@operator concat(omni.Seq): omni.Seq
local Seq = {}

---Items i to j (inclusive, negative from the end; of an open sequence from its start).
---@param i integer
---@param j integer?
---@return omni.Seq
function Seq:sub(i, j) end

---Position of the first `id` at or behind `from`; ids only.
---@param id integer
---@param from integer?
---@return integer?
function Seq:find(id, from) end

---@class omni.Span
---@field from integer
---@field to integer
---@field kind string "text", "image", "video", "audio" or "latent"
---@field grid number[]?

---What a prompt was made of, cut to i..j; for the ids of a prompt.
---@param i integer?
---@param j integer?
---@return omni.Span[]
function Seq:spans(i, j) end

---Rows for a stage: `+` adds columns (one row stretches), `..` appends. Immutable.
---@class omni.Rows
---@operator add(omni.Rows): omni.Rows
---@operator concat(omni.Rows): omni.Rows
---@operator len: integer
local Rows = {}

---Rows i to j, as string.sub counts.
---@param i integer
---@param j integer?
---@return omni.Rows
function Rows:sub(i, j) end

---The rows n times.
---@param n integer
---@return omni.Rows
function Rows:rep(n) end

---One span for the arch's position and mask rule.
---@param kind "image"|"video"|"audio"|"latent"
---@param grid number[]? {t, h, w [, seconds]} or {h, w}
---@return omni.Rows
function Rows:as(kind, grid) end

---Config, read only: a missing key is an error that names the nearest.
---@class omni.Config
---@field [string] any
local Config = {}

---The value of a key that may be missing.
---@param key string
---@return any
function Config:get(key) end

---@alias omni.Table fun(x: integer|integer[]|omni.Seq): omni.Rows
---@alias omni.Source string|omni.Seq|table

---@class omni.Emit
---@field lane string|integer? which lane; default: the first
---@field fill omni.Rows? the row added after `feed` has ended
---@field limits {min_tokens: integer?, max_tokens: integer?}? for this lane; only tightens
---@field drop integer? the first outputs of the stage that are not handed on
---@field mute boolean? the consumer runs, its output is not handed on
---@field [string] omni.Rows|omni.Seq value of a port

---@class omni.Ctx
---@field request table<string, any> fields after defaults; an unknown field is an error
---@field cfg table<string, omni.Config> by stage, `root` (config.json), `index` (model_index.json)
---@field tables table<string, omni.Table> of the receiving stage's arch
---@field state table lives as long as the request; plain data only
---@field route string? name of the request's route
local ctx = {}

---Ids of a text with the receiving stage's tokenizer; special tokens are parsed.
---@param s string
---@return omni.Seq
function ctx:tokenize(s) end

---The id of a text that is one token.
---@param s string
---@return integer
function ctx:token(s) end

---Give rows or sequences to ports of the edge.
---@param e omni.Emit
function ctx:emit(e) end

---The lane becomes a copy of `from` (the default lane) as it stands.
---@param lane string|integer
---@param from string|integer?
function ctx:fork(lane, from) end

---End the request with a 400 that names a field. Does not return.
---@param field string
---@param text string
function ctx:reject(field, text) end

---A line in the log: 32 a call, 256 bytes each.
---@param s string
function ctx:log(s) end

---The same, and the user is told.
---@param s string
function ctx:warn(s) end

---What ended a phase, for `next` hooks.
---@class omni.Done
---@field phase string
---@field stop integer? the id that ended the decoding

---Another file of the Lua folders: the table that it returns.
---@param name string
---@return table
function use(name) end

---Regular expressions: PCRE2, UTF-8.
re = {}

---Positions of the first match and its groups, or nil.
---@param s string
---@param pattern string
---@param init integer?
---@return integer? from, integer? to, string? ...
function re.find(s, pattern, init) end

---The groups of the first match (the match of a pattern without groups), or nil.
---@param s string
---@param pattern string
---@param init integer?
---@return string? ...
function re.match(s, pattern, init) end

---An iterator over all matches, as re.match gives them.
---@param s string
---@param pattern string
---@return fun(): string?, ...
function re.gmatch(s, pattern) end

---Replace matches: by a string ($1, ${12}, $0, $$), a function's or a table's answer.
---@param s string
---@param pattern string
---@param replacement string|fun(...): string?|table
---@param n integer?
---@return string, integer
function re.gsub(s, pattern, replacement, n) end

---What a fixture of `omni-graph hook test` may hold.
---@class omni.Fixture
---@field arch string?
---@field stage string?
---@field cfg table<string, table>?
---@field request table?
---@field fields string[]?
---@field src table<string, any>?
---@field lanes string[]|"numbered"|nil
---@field tokens table<string, integer>?

---The argument of `test_*` functions.
---@class omni.T
local t = {}

---Run a hook on a fixture: the lines that it prints.
---@param name string
---@param fixture omni.Fixture
---@return string[]
function t:hook(name, fixture) end

---The same for a hook that must reject: field and text.
---@param name string
---@param fixture omni.Fixture
---@return string field, string text
function t:rejects(name, fixture) end

---Deep equality; a list also equals the lines of a string.
---@param got any
---@param want any
---@param what string?
function t:eq(got, want, what) end

---@param value any
---@param what string?
function t:ok(value, what) end
