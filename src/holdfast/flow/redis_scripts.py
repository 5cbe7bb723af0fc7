"""The changes in Redis, as scripts: each runs alone, and reaches the log of the server whole or not at all.

A server that is full refuses the first call of a script that may need room, but none after a change: so
scripts that free begin with a `DEL`.

Each begins by looking for two keys that never exist. While a slot of a cluster is being moved neither node lets a
script do that, nor knows all keys of the slot: nothing is changed, and the client tries again.

Keys begin with KEYS[1], which has the tenant as its hash tag: all of a tenant lies on one node of a cluster. A member
is `session:namespace:id`, each quoted.

    seq                     the greatest number given
    usage                   counts of rows, parts and their bytes
    sessions, dead          sorted set of sessions by their latest number; set of those that were deleted
    s:SESSION               hash: family, latest, count, at, deleted
    row:MEMBER              hash: seq, parent, run, at, family, digest, meta, refs, shape
    every, all:SESSION, ns:SESSION:NAMESPACE, run:RUN    sorted sets of members by number
    of:FAMILY               set of the members of a family
    parts:FAMILY            hash of parts; refs:FAMILY: the refs of those that have any
    w:MEMBER                hash of writes; ws:SESSION: set of the members that have any
"""

from __future__ import annotations

_COMMON = """
local P = KEYS[1]
local function key(...) return P .. table.concat({...}) end
local looked = redis.pcall('EXISTS', key('never'), key('nowhere'))
if type(looked) == 'table' then return redis.error_reply('TRYAGAIN the slot of this tenant is being moved') end
local function count(field, by) redis.call('HINCRBY', key('usage'), field, by) end
local function row_size(member)
    local row = key('row:', member)
    return redis.call('HSTRLEN', row, 'meta') + redis.call('HSTRLEN', row, 'refs') + redis.call('HSTRLEN', row, 'shape')
end
local function indexes(member, run)
    local s, n = string.match(member, '^([^:]*):?([^:]*)')
    local found = {key('every'), key('all:', s), key('ns:', s, ':', n)}
    if run and run ~= '' then found[4] = key('run:', run) end
    return found
end
local function drop_writes(member)
    local values = redis.call('HVALS', key('w:', member))
    redis.call('DEL', key('w:', member))
    for _, value in ipairs(values) do count('row_bytes', -#value) end
    redis.call('SREM', key('ws:', string.match(member, '^([^:]*):')), member)
end
local function drop_row(member)
    local row = key('row:', member)
    local held = redis.call('HMGET', row, 'seq', 'family', 'run')
    drop_writes(member)
    if not held[1] then return nil end
    count('row_bytes', -row_size(member))
    count('checkpoints', -1)
    for _, index in ipairs(indexes(member, held[3])) do redis.call('ZREM', index, member) end
    redis.call('SREM', key('of:', held[2]), member)
    redis.call('HINCRBY', key('s:', string.match(member, '^([^:]*):')), 'count', -1)
    redis.call('DEL', row)
    return held[2]
end
local function add_names(refs, live, todo)
    for at = 1, #refs, 16 do
        local name = string.sub(refs, at, at + 15)
        if not live[name] then live[name] = true; todo[#todo + 1] = name end
    end
end
local function sweep(family)
    local live, todo = {}, {}
    for _, member in ipairs(redis.call('SMEMBERS', key('of:', family))) do
        add_names(redis.call('HGET', key('row:', member), 'refs') or '', live, todo)
    end
    while #todo > 0 do
        local refs = redis.call('HGET', key('refs:', family), table.remove(todo))
        if refs then add_names(refs, live, todo) end
    end
    for _, name in ipairs(redis.call('HKEYS', key('parts:', family))) do
        if not live[name] then
            count('parts', -1)
            local size = redis.call('HSTRLEN', key('parts:', family), name)
            count('part_bytes', -size - redis.call('HSTRLEN', key('refs:', family), name))
            redis.call('HDEL', key('parts:', family), name)
            redis.call('HDEL', key('refs:', family), name)
        end
    end
end
"""

_ADDING = """
local function is_there(number, digest)
    local found = redis.call('ZRANGEBYSCORE', key('every'), number, number)[1]
    return found and redis.call('HGET', key('row:', found), 'digest') == digest
end
local function put_row(member, parent, run, at, family, digest, meta, refs, shape)
    local s = string.match(member, '^([^:]*):')
    local row = key('row:', member)
    local seq, old = unpack(redis.call('HMGET', row, 'seq', 'run'))
    if seq then
        if old and old ~= '' then redis.call('ZREM', key('run:', old), member) end
        count('row_bytes', -row_size(member))
    else
        seq = redis.call('INCR', key('seq'))
        count('checkpoints', 1)
        redis.call('HINCRBY', key('s:', s), 'count', 1)
        redis.call('HSET', key('s:', s), 'latest', seq)
        redis.call('ZADD', key('sessions'), seq, s)
    end
    local was = redis.call('HGET', key('s:', s), 'at')
    local noted = was and tonumber(was) > tonumber(at) and was or at
    redis.call('HSET', key('s:', s), 'family', family, 'at', noted, 'deleted', '0')
    redis.call('HSET', row, 'seq', seq, 'parent', parent, 'run', run, 'at', at, 'family', family, 'digest', digest,
        'meta', meta, 'refs', refs, 'shape', shape)
    for _, index in ipairs(indexes(member, run)) do redis.call('ZADD', index, seq, member) end
    redis.call('SADD', key('of:', family), member)
    count('row_bytes', row_size(member))
    return seq
end
"""

_WRITING = """
local function put_write(member, field, value)
    local s = string.match(member, '^([^:]*):')
    local old = redis.call('HSTRLEN', key('w:', member), field)
    redis.call('SADD', key('ws:', s), member)
    redis.call('ZADD', key('written'), 0, s)
    count('row_bytes', #value - old)
    redis.call('HSET', key('w:', member), field, value)
end
"""

COMMIT = f"""{_COMMON}{_ADDING}
local s, n, c, parent, run, at, family, digest, meta, refs, shape, base, base_digest, compare, expected, replacing =
    unpack(ARGV, 1, 16)
local member = s .. ':' .. n .. ':' .. c
local row = key('row:', member)
local there = redis.call('HGET', row, 'digest')
if there == digest then return {{'saved', redis.call('HGET', row, 'seq')}} end
local known = redis.call('HMGET', key('s:', s), 'family', 'deleted')
if known[2] == '1' then return {{'deleted'}} end
if there and replacing ~= '1' then return {{'taken'}} end
if compare == '1' then
    local newest = redis.call('ZREVRANGE', key('ns:', s, ':', n), 0, 0)[1]
    newest = newest and string.match(newest, '([^:]*)$') or ''
    if newest ~= expected then return {{'moved', newest}} end
end
if known[1] and known[1] ~= family then return {{'stale'}} end
if base ~= '' and not is_there(base, base_digest) then return {{'stale'}} end
for i = 17, #ARGV, 3 do
    if redis.call('HSETNX', key('parts:', family), ARGV[i], ARGV[i + 2]) == 1 then
        count('parts', 1)
        count('part_bytes', #ARGV[i + 1] + #ARGV[i + 2])
        if ARGV[i + 1] ~= '' then redis.call('HSET', key('refs:', family), ARGV[i], ARGV[i + 1]) end
    end
end
local seq = put_row(member, parent, run, at, family, digest, meta, refs, shape)
if there then sweep(family) end
return {{'saved', tostring(seq)}}
"""

BEGIN = f"""{_COMMON}{_ADDING}{_WRITING}
local s, family, reopening, rows = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local deleted = redis.call('HGET', key('s:', s), 'deleted')
if deleted and not (deleted == '1' and reopening == '1') then return {{'exists'}} end
for i = 5, 4 + 10 * rows, 10 do
    if not is_there(ARGV[i + 8], ARGV[i + 9]) then return {{'stale'}} end
end
count('checkpoints', 0)
redis.call('SREM', key('dead'), s)
redis.call('DEL', key('s:', s))
local numbers = {{'saved'}}
for i = 5, 4 + 10 * rows, 10 do
    numbers[#numbers + 1] = put_row(ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], family, unpack(ARGV, i + 4, i + 7))
end
for i = 5 + 10 * rows, #ARGV, 3 do put_write(ARGV[i], ARGV[i + 1], ARGV[i + 2]) end
return numbers
"""

_LOOKING = """
local function is_still(s, latest, at)
    local known = redis.call('HMGET', key('s:', s), 'latest', 'at', 'deleted')
    return known[1] == latest and known[2] == at and known[3] ~= '1'
end
"""

DELETE = f"""{_COMMON}{_LOOKING}
local gone, families, first = 0, {{}}, 2 + 3 * ARGV[1]
for i = 2, first - 1, 3 do
    if not is_still(ARGV[i], ARGV[i + 1], ARGV[i + 2]) then return false end
end
for i = first, #ARGV do
    local family = drop_row(ARGV[i])
    if family then gone = gone + 1; families[family] = true end
end
for family in pairs(families) do sweep(family) end
return gone
"""

DELETE_SESSION = f"""{_COMMON}{_LOOKING}
local s = ARGV[1]
local gone = 0
if ARGV[3] and not is_still(s, ARGV[3], ARGV[4]) then return 0 end
for _, member in ipairs(redis.call('SMEMBERS', key('ws:', s))) do drop_writes(member) end
local family = redis.call('HGET', key('s:', s), 'family')
for _, member in ipairs(redis.call('ZRANGE', key('all:', s), 0, -1)) do
    if drop_row(member) then gone = gone + 1 end
end
redis.call('ZREM', key('sessions'), s)
redis.call('SREM', key('dead'), s)
if family and ARGV[2] == '1' then
    redis.call('HSET', key('s:', s), 'deleted', '1', 'count', 0)
    redis.call('SADD', key('dead'), s)
else
    redis.call('DEL', key('s:', s))
end
if family then sweep(family) end
return gone
"""

REOPEN = f"""{_COMMON}
if redis.call('SREM', key('dead'), ARGV[1]) == 0 then return 0 end
redis.call('DEL', key('s:', ARGV[1]))
return 1
"""

BURY = f"""{_COMMON}
if redis.call('EXISTS', key('s:', ARGV[1])) == 1 then return 0 end
redis.call('HSET', key('s:', ARGV[1]), 'family', 0, 'latest', 0, 'count', 0, 'at', 0, 'deleted', '1')
redis.call('SADD', key('dead'), ARGV[1])
return 1
"""

WEIGH = f"""{_COMMON}
local s = ARGV[1]
local family, deleted = unpack(redis.call('HMGET', key('s:', s), 'family', 'deleted'))
if not family or deleted == '1' then return false end
local rows, parts, sessions, seen = 0, 0, 0, {{}}
for _, member in ipairs(redis.call('ZRANGE', key('all:', s), 0, -1)) do rows = rows + row_size(member) end
for _, member in ipairs(redis.call('SMEMBERS', key('ws:', s))) do
    for _, value in ipairs(redis.call('HVALS', key('w:', member))) do rows = rows + #value end
end
for _, name in ipairs(redis.call('HKEYS', key('parts:', family))) do
    parts = parts + redis.call('HSTRLEN', key('parts:', family), name)
    parts = parts + redis.call('HSTRLEN', key('refs:', family), name)
end
for _, member in ipairs(redis.call('SMEMBERS', key('of:', family))) do
    local other = string.match(member, '^([^:]*):')
    if not seen[other] then seen[other] = true; sessions = sessions + 1 end
end
return {{rows, family, parts, sessions}}
"""

CLEAR = f"""{_COMMON}
for _, member in ipairs(redis.call('ZRANGE', key('every'), 0, -1)) do
    local held = redis.call('HMGET', key('row:', member), 'family', 'run')
    for _, index in ipairs(indexes(member, held[2])) do redis.call('DEL', index) end
    local family = held[1] or redis.call('HGET', key('s:', string.match(member, '^([^:]*)')), 'family') or ''
    redis.call('DEL', key('row:', member), key('of:', family), key('parts:', family), key('refs:', family))
end
for _, set in ipairs({{'sessions', 'written'}}) do
    for _, s in ipairs(redis.call('ZRANGE', key(set), 0, -1)) do
        for _, member in ipairs(redis.call('SMEMBERS', key('ws:', s))) do redis.call('DEL', key('w:', member)) end
        redis.call('DEL', key('s:', s), key('ws:', s))
    end
end
for _, s in ipairs(redis.call('SMEMBERS', key('dead'))) do redis.call('DEL', key('s:', s)) end
redis.call('DEL', key('every'), key('sessions'), key('written'), key('dead'), key('usage'))
return 1
"""

ADD_WRITES = f"""{_COMMON}{_WRITING}
local member, replacing = ARGV[1], ARGV[2]
local s = string.match(member, '^([^:]*):')
if redis.call('HGET', key('s:', s), 'deleted') == '1' then return 0 end
for i = 3, #ARGV, 2 do
    if replacing == '1' or redis.call('HEXISTS', key('w:', member), ARGV[i]) == 0 then
        put_write(member, ARGV[i], ARGV[i + 1])
    end
end
return 1
"""
