"""Answers to assignment 7: right ones in several styles, and wrong ones with what they get.

RIGHT    what it is: the cells of a whole notebook, as one text, cut at `# %%`; behind a question's
         name and a colon, its cells alone
WRONG    question, what is wrong, the cell, the points it gets, words of a hint that names it
BORROWED question, what it is, the cells: answers that are not one's own
BEFORE   how many of the source's cells come before: the imports
"""

BEFORE = 1

PREDICTED = """
work = [6, 15, 27, 77]
compared = (2, 3, 7, 4)
gibibytes = [63, 1008, 63 / 2]
intensity = [16, 16, 1, 32, 13]
"""

# What the question on dates gives to students.
AROUND = """
model = dates.trained()
torch.set_grad_enabled(False)

def around(block, x, look_back, memory, source_mask):
    back, across, think = block.residuals
    x = back(x, look_back)
    x = across(x, lambda x: block.cross_attention(x, memory, mask=source_mask))
    return think(x, block.feed_forward)
"""

WRITE = """
def write(source, source_mask):
    memory, caches = model.encode(source, source_mask), None
    tokens = torch.full((len(source), 1), dates.START)
    for _ in range(11):
        logits, caches = decode_new(tokens[:, -1:], memory, source_mask, caches)
        tokens = torch.cat([tokens, logits[:, -1:].argmax(-1)], dim=1)
    return tokens[:, 1:]
"""

RIGHT = {
    "one query after the other, in loops": PREDICTED
    + AROUND
    + """
def attend_one(q, keys, values):
    weights = torch.stack([k @ q for k in keys]).div(len(q) ** 0.5).softmax(0)
    return sum(w * v for w, v in zip(weights, values))

def attend_new(query, key, value, cache):
    keys, values = cache or (key[:, :, :0], value[:, :, :0])
    outputs = []
    for n in range(query.shape[2]):
        keys = torch.cat([keys, key[:, :, n:n + 1]], 2)
        values = torch.cat([values, value[:, :, n:n + 1]], 2)
        outputs.append(torch.stack([
            torch.stack([attend_one(query[b, h, n], keys[b, h], values[b, h])
                         for h in range(query.shape[1])])
            for b in range(len(query))]))
    return torch.stack(outputs, dim=2), (keys, values)

def append(keys, values, seen, key, value):
    missing = seen + key.shape[2] - keys.shape[2]
    if missing > 0:
        raise ValueError("no room: %d of %d are taken, %d came" % (
            seen, keys.shape[2], key.shape[2]))
    for n in range(key.shape[2]):
        keys[:, :, seen + n] = key[:, :, n]
        values[:, :, seen + n] = value[:, :, n]
    seen += key.shape[2]
    return keys[:, :, :seen], values[:, :, :seen], seen

def append_all(keys, values, pieces):
    seen, refused = 0, []
    for n in range(len(pieces)):
        key, value = pieces[n]
        if seen + key.shape[2] > keys.shape[2]:
            refused += [n]
        else:
            seen = append(keys, values, seen, key, value)[2]
    return seen, refused

def attend_shared(query, keys, values):
    b, h, i, d = query.shape
    r, j = h // keys.shape[1], keys.shape[2]
    output = query.new_empty(b, h, i, values.shape[3])
    for head in range(h):
        for n in range(i):
            last = j - i + n + 1
            k, v = keys[:, head // r, :last], values[:, head // r, :last]
            scores = torch.matmul(k, query[:, head, n, :, None])[..., 0] / math.sqrt(d)
            output[:, head, n] = (scores.softmax(-1)[:, None] @ v)[:, 0]
    return output

def attend_rolling(query, key, value, cache, before):
    keys, values = cache or (key[:, :, :0], value[:, :, :0])
    outputs = []
    for n in range(query.shape[2]):
        k = torch.cat([keys, key[:, :, n:n + 1]], 2)
        v = torch.cat([values, value[:, :, n:n + 1]], 2)
        scores = (k @ query[:, :, n, :, None]) / math.sqrt(query.shape[-1])
        outputs.append((scores.softmax(2) * v).sum(2))
        while k.shape[2] > before:
            k, v = k[:, :, 1:], v[:, :, 1:]
        keys, values = k, v
    return torch.stack(outputs, 2), (keys, values)

def decode_new(tokens, memory, source_mask, caches):
    caches = list(caches) if caches else [None, None]
    start = 0 if caches[0] is None else caches[0][0].size(2)
    x = model.embed(tokens, model.target_embedding, start)
    for n, block in enumerate(model.decoder):
        def look_back(x):
            layer = block.self_attention
            b, i, _ = x.shape
            q, k, v = (project(x).view(b, i, 4, 16).transpose(1, 2)
                       for project in [layer.q_proj, layer.k_proj, layer.v_proj])
            heads, caches[n] = attend_new(q, k, v, caches[n])
            return layer.out_proj(heads.transpose(1, 2).reshape(b, i, 64))
        x = around(block, x, look_back, memory, source_mask)
    return model.to_logits(model.decoder_closing(x)), caches
"""
    + WRITE,
    "einsum in float64, results that are not contiguous": """
work = [sum([4, 1, 1]), sum([4, 5, 6]), 16 + 5 + 6, 16 + 25 + 36]
compared = torch.tensor([2, 3, 7, 4])
gibibytes = torch.tensor([126 * 8 * 128 * 4 * 2.0**17, 126 * 128 * 128 * 4 * 2.0**17,
                          16 * 126 * 8 * 128 * 4 * 4096.0], dtype=torch.float64) / 2**30
intensity = torch.tensor([16.0, 16, 1, 32, 13])
"""
    + AROUND
    + """
def attend(q, k, v, mask):
    scores = einsum(q.double(), k.double(), "b g r i d, b g j d -> b g r i j") * q.shape[-1] ** -0.5
    weights = torch.where(mask, scores, -math.inf).softmax(-1)
    return einsum(weights, v.double(), "b g r i j, b g j e -> b e r g i").to(v.dtype)

def of_each(q, k, v, mask):
    return rearrange(attend(q[:, :, None], k, v, mask), "b e 1 h i -> b h i e")

def seen_by(i, j):
    return torch.arange(j) <= torch.arange(j - i, j)[:, None]

def joined(cache, key, value):
    old = cache or [x.narrow(2, 0, 0) for x in (key, value)]
    return [torch.cat(pair, dim=-2) for pair in zip(old, (key, value))]

def attend_new(query, key, value, cache):
    cache = joined(cache, key, value)
    return [of_each(query, *cache, seen_by(query.shape[2], cache[0].shape[2])), cache]

def append(keys, values, seen, key, value):
    stop = seen + key.shape[2]
    if stop > keys.shape[2]:
        raise ValueError(f"{key.shape[2]} do not fit: {seen} of {keys.shape[2]} are taken")
    for room, new in ((keys, key), (values, value)):
        room.narrow(2, seen, stop - seen).copy_(new)
    return [keys.narrow(2, 0, stop), values.narrow(2, 0, stop), stop]

def append_all(keys, values, pieces):
    refused, seen = (), 0
    for number, piece in enumerate(pieces):
        try:
            seen = append(keys, values, seen, *piece)[-1]
        except ValueError:
            refused += (number,)
    return [seen, refused]

def attend_shared(query, keys, values):
    q = rearrange(query, "b (g r) i d -> b g r i d", g=keys.shape[1])
    found = attend(q, keys, values, seen_by(query.shape[2], keys.shape[2]))
    return rearrange(found, "b e r g i -> b (g r) i e")

def attend_rolling(query, key, value, cache, before):
    keys, values = joined(cache, key, value)
    i, j = query.shape[2], keys.shape[2]
    mask = seen_by(i, j) & ~seen_by(i, j).roll(-before - 1, 1).tril(j - i - before - 1)
    output = of_each(query, keys, values, mask)
    return output, [x.flip(2)[:, :, :before].flip(2) for x in (keys, values)]

def decode_new(tokens, memory, source_mask, caches):
    caches = caches or len(model.decoder) * [None]
    seen = 0 if caches[0] is None else caches[0][0].shape[2]
    x, found = model.embed(tokens, model.target_embedding, start=seen), []
    for block, cache in zip(model.decoder, caches):
        x = around(block, x, lambda x: look_back(block.self_attention, x, cache, found),
                   memory, source_mask)
    return model.to_logits(model.decoder_closing(x)), found

def look_back(layer, x, cache, found):
    rows = layer.q_proj(x), layer.k_proj(x), layer.v_proj(x)
    heads, new = attend_new(*(rearrange(r, "b n (h d) -> b h n d", d=16) for r in rows), cache)
    found.append(new)
    return layer.out_proj(rearrange(heads, "b h n d -> b n (h d)"))
"""
    + WRITE,
    "numpy and back": """
import numpy as np

work, compared = np.array([6, 15, 27, 77]), np.minimum([0, 2, 3, 7], 3) + [2, 1, 4, 1]
gibibytes = np.array([1, 16, 0.5]) * 63
intensity = np.array([16, 16, 1, 32, 13])
"""
    + AROUND
    + """
def softmax(scores):
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)

def hidden(i, j, before=None):
    distance = np.arange(j - i, j)[:, np.newaxis] - np.arange(j)
    return (distance < 0) | (distance > (j if before is None else before))

def attend(q, k, v, hide):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(np.float32(q.shape[-1]))
    return softmax(np.where(hide, -np.inf, scores)) @ v

def joined(cache, key, value):
    if cache is None:
        return key.numpy(), value.numpy()
    return [np.concatenate([x.numpy(), y.numpy()], 2) for x, y in zip(cache, (key, value))]

def attend_new(query, key, value, cache):
    keys, values = joined(cache, key, value)
    output = attend(query.numpy(), keys, values, hidden(query.shape[2], keys.shape[2]))
    cache = torch.from_numpy(keys.copy()), torch.from_numpy(values.copy())
    return torch.from_numpy(output).to(value.dtype), cache

def append(keys, values, seen, key, value):
    rooms = keys.numpy(), values.numpy()  # these share their memory
    came = key.shape[2]
    if came > keys.shape[2] - seen:
        raise ValueError("%i taken of %i, %i came" % (seen, keys.shape[2], came))
    for room, new in zip(rooms, (key, value)):
        room[:, :, seen:seen + came] = new.numpy()
    return keys[:, :, :seen + came], values[:, :, :seen + came], seen + came

def append_all(keys, values, pieces):
    fits, seen = [], 0
    for key, value in pieces:
        fits.append(seen + key.shape[2] <= keys.shape[2])
        if fits[-1]:
            _, _, seen = append(keys, values, seen, key, value)
    return seen, np.flatnonzero(~np.array(fits)).tolist()

def attend_shared(query, keys, values):
    (b, h, i, d), (_, g, j, e) = query.shape, values.shape
    q = query.numpy().reshape(b, g, h // g * i, d)
    hide = np.tile(hidden(i, j), (h // g, 1))
    return torch.from_numpy(attend(q, keys.numpy(), values.numpy(), hide).reshape(b, h, i, e))

def attend_rolling(query, key, value, cache, before):
    keys, values = joined(cache, key, value)
    i, j = query.shape[2], keys.shape[2]
    output = attend(query.numpy(), keys, values, hidden(i, j, before))
    last = np.arange(j)[-before:] if before else []
    return torch.from_numpy(output), [torch.from_numpy(x.take(last, 2).copy())
                                      if len(last) else torch.from_numpy(x[:, :, :0].copy())
                                      for x in (keys, values)]

def decode_new(tokens, memory, source_mask, caches):
    found = []
    start = caches[0][0].shape[2] if caches else 0
    x = model.embed(tokens, model.target_embedding, start)
    for number, block in enumerate(model.decoder):
        layer = block.self_attention
        def look_back(x):
            q, k, v = (rearrange(p(x), "b n (h d) -> b h n d", h=4)
                       for p in (layer.q_proj, layer.k_proj, layer.v_proj))
            heads, cache = attend_new(q, k, v, caches[number] if caches else None)
            found.append(cache)
            return layer.out_proj(rearrange(heads, "b h n d -> b n (h d)"))
        x = around(block, x, look_back, memory, source_mask)
    return model.to_logits(model.decoder_closing(x)), found
"""
    + WRITE,
    "named tuples, comments in Chinese, in several cells": """
# 提示是四个词,然后一次一个词
调用 = [4, 1, 1]
至今 = [4, 5, 6]
work = [sum(调用), sum(至今), sum(甲 * 乙 for 甲, 乙 in zip(调用, 至今)), sum(乙**2 for 乙 in 至今)]
compared = [2, 3, 7, 4]
每词 = 2 * 126 * 8 * 128 * 2
gibibytes = [每词 * 131_072 / 2**30, 每词 * 16 * 131_072 / 2**30, 每词 * 16 * 4_096 / 2**30]
intensity = [128 / 8, 128 / 8, 1, 2 * 128 / 8, 13]
# %%
from typing import NamedTuple

class 缓存(NamedTuple):
    '''到目前为止的键和值。'''

    键: torch.Tensor
    值: torch.Tensor

    def 加(self, 键, 值):
        return 缓存(torch.cat((self.键, 键), 2), torch.cat((self.值, 值), 2))

    def 最后(self, 多少):
        起 = max(0, self.键.size(2) - 多少)
        return 缓存(self.键[:, :, 起:], self.值[:, :, 起:])

def 注意(问, 存, 遮):
    分数 = torch.einsum("bhid,bhjd->bhij", 问, 存.键) / math.sqrt(问.size(-1))
    return torch.einsum("bhij,bhje->bhie", 分数.masked_fill(~遮, -math.inf).softmax(-1), 存.值)
# %%
def attend_new(问, 键, 值, 旧):
    存 = 缓存(*旧).加(键, 值) if 旧 else 缓存(键, 值)
    return 注意(问, 存, causal_mask(问.size(2), 存.键.size(2))), 存

def attend_rolling(问, 键, 值, 旧, 前):
    存 = 缓存(*旧).加(键, 值) if 旧 else 缓存(键, 值)
    遮 = window_mask(问.size(2), 存.键.size(2), before=前)
    return 注意(问, 存, 遮), 存.最后(前)
# %%
def append(室键, 室值, 已, 键, 值):
    有, 来 = 室键.size(2), 键.size(2)
    if 已 + 来 > 有:
        raise ValueError(f"只有 {有} 个位置,已用 {已} 个,又来 {来} 个")
    位 = torch.arange(已, 已 + 来)
    室键.index_copy_(2, 位, 键)
    室值.index_copy_(2, 位, 值)
    return 室键[:, :, :已 + 来], 室值[:, :, :已 + 来], 已 + 来

def append_all(室键, 室值, 块):
    已, 拒 = 0, []
    for 号, (键, 值) in enumerate(块):
        try:
            _, _, 已 = append(室键, 室值, 已, 键, 值)
        except ValueError:
            拒.append(号)
    return 已, 拒
# %%
def attend_shared(问, 键, 值):
    组, 新 = 键.size(1), 问.size(2)
    并 = rearrange(问, "b (g r) i d -> b g (r i) d", g=组)
    遮 = repeat(causal_mask(新, 键.size(2)), "i j -> (r i) j", r=问.size(1) // 组)
    return rearrange(注意(并, 缓存(键, 值), 遮), "b g (r i) e -> b (g r) i e", i=新)
# %%
"""
    + AROUND
    + """
def decode_new(词, 记忆, 源遮, 旧们):
    旧们 = 旧们 or [None, None]
    x = model.embed(词, model.target_embedding, 旧们[0][0].size(2) if 旧们[0] else 0)
    新们 = []
    for 层, 旧 in zip(model.decoder, 旧们):
        def 回看(x, 注=层.self_attention):
            问, 键, 值 = (线(x).unflatten(-1, (4, 16)).transpose(1, 2)
                          for 线 in (注.q_proj, 注.k_proj, 注.v_proj))
            出, 新 = attend_new(问, 键, 值, 旧)
            新们.append(新)
            return 注.out_proj(出.transpose(1, 2).flatten(2))
        x = around(层, x, 回看, 记忆, 源遮)
    return model.to_logits(model.decoder_closing(x)), 新们

def write(源, 源遮):
    记忆, 存, 词 = model.encode(源, 源遮), None, 源.new_full((len(源), 1), dates.START)
    全 = []
    while len(全) < 11:
        分, 存 = decode_new(词, 记忆, 源遮, 存)
        词 = 分.max(-1).indices
        全 += [词]
    return torch.hstack(全)
""",
    "attend-new: kept and new scores apart": """
def attend_new(query, key, value, cache):
    query = query / math.sqrt(query.shape[-1])
    later = torch.ones(query.shape[2], query.shape[2], dtype=torch.bool).triu(1)
    scores = [(query @ key.mT).masked_fill(later, -torch.inf)]
    if cache is not None:
        scores = [query @ cache[0].mT, *scores]
        key, value = (torch.cat([a, b], 2) for a, b in zip(cache, (key, value)))
    return torch.cat(scores, -1).softmax(-1) @ value, (key, value)
""",
    "attend-new: a bias of minus infinity, powers and a sum": """
def attend_new(q, k, v, cache):
    if cache:
        k, v = torch.concat((cache[0], k), -2), torch.concat((cache[1], v), -2)
    bias = torch.full((q.size(2), k.size(2)), -math.inf).triu(1 + k.size(2) - q.size(2))
    scores = torch.matmul(q, k.transpose(2, 3)) * q.size(3) ** -0.5 + bias
    powers = (scores - scores.amax(-1, True)).exp()
    return powers @ v / powers.sum(-1, True), [k, v]
""",
    "room: index_put_, and a check by a view": """
def append(keys, values, seen, key, value):
    if key.shape[2] > keys[:, :, seen:].shape[2]:
        raise ValueError("room %s, taken %s, new %s" % (keys.shape[2], seen, key.shape[2]))
    at = slice(None), slice(None), torch.arange(seen, seen + key.shape[2])
    keys[at], values[at] = key, value
    return keys[:, :, :at[2].numel() + seen], values[:, :, :at[2].numel() + seen], seen + len(at[2])

def append_all(keys, values, pieces):
    def go_on(seen, refused, rest):
        if not rest:
            return seen, refused
        (number, piece), *rest = rest
        try:
            _, _, now = append(keys, values, seen, *piece)
        except ValueError:
            return go_on(seen, [*refused, number], rest)
        return go_on(now, refused, rest)
    return go_on(0, [], list(enumerate(pieces)))
""",
    "attend-shared: a group at a time": """
def attend_shared(query, keys, values):
    outputs = []
    for q, k, v in zip(query.chunk(keys.shape[1], 1), keys.unbind(1), values.unbind(1)):
        hidden = ~causal_mask(q.shape[2], k.shape[1])
        for head in q.unbind(1):
            scores = head @ k.mT / math.sqrt(head.shape[-1])
            outputs.append(scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v)
    return torch.stack(outputs, 1)
""",
    "attend-shared: queries side by side, with bmm": """
def attend_shared(query, keys, values):
    (b, h, i, d), (_, g, j, e) = query.shape, values.shape
    r = h // g
    q = query.reshape(b * g, r * i, d)
    scores = torch.bmm(q, keys.reshape(b * g, j, d).transpose(1, 2)) / d ** 0.5
    last = torch.arange(r * i).remainder(i) + j - i
    scores = scores.masked_fill(torch.arange(j) > last[:, None], -torch.inf)
    return torch.bmm(scores.softmax(2), values.reshape(b * g, j, e)).reshape(b, h, i, e)
""",
    "attend-rolling: only the keys that a query sees": """
def attend_rolling(query, key, value, cache, before):
    kept = 0
    if cache is not None:
        kept = cache[0].shape[2]
        key, value = torch.cat([cache[0], key], 2), torch.cat([cache[1], value], 2)
    outputs = []
    for n, q in enumerate(query.unbind(2), start=kept):
        k, v = (x[:, :, max(0, n - before):n + 1] for x in (key, value))
        weights = torch.einsum("bhd,bhjd->bhj", q / math.sqrt(q.shape[-1]), k).softmax(-1)
        outputs.append(torch.einsum("bhj,bhje->bhe", weights, v))
    first = max(0, key.shape[2] - before)
    return torch.stack(outputs, 2), (key[:, :, first:], value[:, :, first:])
""",
    "dates: its own attention, in float64": AROUND
    + """
wide = dates.trained().double()

def decode_new(tokens, memory, source_mask, caches):
    memory = memory.double()
    seen = caches[0][0].shape[2] if caches is not None else 0
    x = wide.embed(tokens, wide.target_embedding, seen)
    kept = []
    for n, block in enumerate(wide.decoder):
        layer = block.self_attention
        def look_back(x):
            q, k, v = (rearrange(p(x), "b i (h d) -> b h i d", h=layer.num_heads)
                       for p in (layer.q_proj, layer.k_proj, layer.v_proj))
            if caches is not None:
                k, v = (torch.cat([old.double(), new], 2) for old, new in zip(caches[n], (k, v)))
            kept.append((k, v))
            scores = q @ k.mT / 4
            scores += torch.full_like(scores, -torch.inf).triu(1 + k.shape[2] - q.shape[2])
            heads = scores.softmax(-1) @ v
            return layer.out_proj(rearrange(heads, "b h i d -> b i (h d)"))
        x = around(block, x, look_back, memory, source_mask)
    return wide.to_logits(wide.decoder_closing(x)).float(), kept
"""
    + WRITE,
}


def _listed(work="6, 15, 27, 77", compared="2, 3, 7, 4", gibibytes="63, 1008, 31.5",
            intensity="16, 16, 1, 32, 13"):  # fmt: skip
    return (
        f"work, compared, gibibytes, intensity = [{work}], [{compared}], [{gibibytes}], "
        f"[{intensity}]"
    )


def _attend(
    keys="torch.cat([cache[0], key], dim=2)",
    values="torch.cat([cache[1], value], dim=2)",
    scores="query @ keys.mT / math.sqrt(query.shape[-1])",
    mask="causal_mask(query.shape[2], keys.shape[2])",
    output="scores.softmax(-1) @ values",
    cache="(keys, values)",
    first="key, value",
    returned="output, cache",
):
    return f"""
def attend_new(query, key, value, cache):
    keys, values = {first}
    if cache is not None:
        keys = {keys}
        values = {values}
    scores = {scores}
    scores = scores.masked_fill(~{mask}, -torch.inf)
    output = {output}
    cache = {cache}
    return {returned}
"""


def _room(
    check="seen + new > room",
    error="ValueError(f'room for {room}, {seen} taken, {new} new')",
    before="",
    place="slice(seen, seen + new)",
    written="key, value",
    returned="keys[:, :, :seen + new], values[:, :, :seen + new], seen + new",
    refused="refused.append(number)",
    start="0",
    ending="",
):
    return f"""
def append(keys, values, seen, key, value):
    room, new = keys.shape[2], key.shape[2]
    {before}
    if {check}:
        raise {error}
    place = {place}
    keys[:, :, place], values[:, :, place] = {written}
    return {returned}

def append_all(keys, values, pieces):
    seen, refused = 0, []
    for number, (key, value) in enumerate(pieces, start={start}):
        try:
            *_, seen = append(keys, values, seen, key, value)
        except ValueError:
            {refused}
            {ending}
    return seen, refused
"""


SILENT = """
def append(keys, values, seen, key, value):
    room, new = keys.shape[2], key.shape[2]
    {}
    stop = min(seen + new, room)
    return keys[:, :, :stop], values[:, :, :stop], stop

def append_all(keys, values, pieces):
    seen = 0
    for piece in pieces:
        *_, seen = append(keys, values, seen, *piece)
    return seen, []
"""
CLAMPED = SILENT.format("""new = min(new, room)
    start = min(seen, room - new)
    keys[:, :, start:start + new] = key[:, :, :new]
    values[:, :, start:start + new] = value[:, :, :new]""")
LAST_PLACE = SILENT.format("""for n in range(new):
        place = min(seen + n, room - 1)
        keys[:, :, place], values[:, :, place] = key[:, :, n], value[:, :, n]""")
CUT_OFF = SILENT.format("""fit = min(new, room - seen)
    keys[:, :, seen:seen + fit] = key[:, :, :fit]
    values[:, :, seen:seen + fit] = value[:, :, :fit]""")
RING = SILENT.format("""for n in range(new):
        place = (seen + n) % room
        keys[:, :, place], values[:, :, place] = key[:, :, n], value[:, :, n]""")
OLDEST = SILENT.format("""for kept, more in ((keys, key), (values, value)):
        both = torch.cat([kept[:, :, :seen], more], 2)[:, :, -room:]
        kept[:, :, :both.shape[2]] = both""")
PASSED_OVER = SILENT.format("""if seen + new <= room:
        keys[:, :, seen:seen + new], values[:, :, seen:seen + new] = key, value
    else:
        return keys[:, :, :seen], values[:, :, :seen], seen""")
GROWN = """
def append(keys, values, seen, key, value):
    if seen + key.shape[2] > keys.shape[2]:
        raise ValueError(f"room for {keys.shape[2]}, {seen} taken, {key.shape[2]} new")
    keys = torch.cat([keys[:, :, :seen], key], 2)
    values = torch.cat([values[:, :, :seen], value], 2)
    return keys, values, keys.shape[2]

def append_all(keys, values, pieces):
    seen, refused = 0, []
    for number, piece in enumerate(pieces):
        try:
            keys, values, seen = append(keys, values, seen, *piece)
        except ValueError:
            refused.append(number)
    return seen, refused
"""
WRITTEN_FIRST = _room(
    before="""fit = min(new, room - seen)
    keys[:, :, seen:seen + fit], values[:, :, seen:seen + fit] = (
        key[:, :, :fit], value[:, :, :fit])"""
)


def _shared(
    split='"b (g r) i d -> b g r i d"',
    joined='"b g r i e -> b (g r) i e"',
    scores="scores / math.sqrt(query.shape[-1])",
    mask="causal_mask(i, j)",
    keys="keys",
    values="values",
):
    return f"""
def attend_shared(query, keys, values):
    i, j = query.shape[2], keys.shape[2]
    q = rearrange(query, {split}, g=keys.shape[1])
    keys, values = {keys}, {values}
    scores = einsum(q, keys, "b g r i d, b g j d -> b g r i j")
    scores = {scores}
    weights = scores.masked_fill(~{mask}, -torch.inf).softmax(-1)
    heads = einsum(weights, values, "b g r i j, b g j e -> b g r i e")
    return rearrange(heads, {joined})
"""


def _copied(keys, values):
    return f"""
def attend_shared(query, keys, values):
    i, j = query.shape[2], keys.shape[2]
    r = query.shape[1] // keys.shape[1]
    keys, values = {keys}, {values}
    scores = query @ keys.mT / math.sqrt(query.shape[-1])
    return scores.masked_fill(~causal_mask(i, j), -torch.inf).softmax(-1) @ values
"""


BROADCAST = """
def attend_shared(query, keys, values):
    i, j = query.shape[2], keys.shape[2]
    q = rearrange(query, "b (g r) i d -> b g r i d", g=keys.shape[1])
    scores = q @ keys[:, :, None].mT / math.sqrt(query.shape[-1])
    weights = scores.masked_fill(~causal_mask(i, j), -torch.inf).softmax(-1)
    return rearrange(weights @ values[:, :, None], "b g r i e -> b (g r) i e")
"""


def _rolling(
    mask="window_mask(i, j, before=before)",
    first="max(j - before, 0)",
    scores="query @ key.mT / math.sqrt(query.shape[-1])",
    dropped="",
    kept="key[:, :, first:], value[:, :, first:]",
):
    return f"""
def attend_rolling(query, key, value, cache, before):
    if cache is not None:
        key = torch.cat([cache[0], key], dim=2)
        value = torch.cat([cache[1], value], dim=2)
    {dropped}
    i, j = query.shape[2], key.shape[2]
    scores = {scores}
    output = scores.masked_fill(~{mask}, -torch.inf).softmax(-1) @ value
    first = {first}
    return output, ({kept})
"""


AT_THE_START = "((torch.arange(i)[:, None] - torch.arange(j)).abs() <= before).tril()"


def _decode(
    start="caches[0][0].shape[2] if caches else 0",
    cache="caches[n] if caches else None",
    split='"b i (h d) -> b h i d"',
    mask="causal_mask(i, j)",
    source_mask="source_mask",
    logits="model.to_logits(model.decoder_closing(x))",
    new="(k, v)",
    joined='"b h i d -> b i (h d)"',
    kept="kept",
    written=WRITE,
):
    return (
        AROUND
        + f"""
def decode_new(tokens, memory, source_mask, caches):
    x = model.embed(tokens, model.target_embedding, {start})
    kept = []
    for n, block in enumerate(model.decoder):
        layer, cache = block.self_attention, {cache}
        def look_back(x):
            rows = [layer.q_proj(x), layer.k_proj(x), layer.v_proj(x)]
            q, k, v = (rearrange(row, {split}, h=4) for row in rows)
            if cache is not None:
                k, v = (torch.cat([old, new], 2) for old, new in zip(cache, (k, v)))
            i, j = q.shape[2], k.shape[2]
            scores = q @ k.mT / math.sqrt(16)
            weights = scores.masked_fill(~{mask}, -torch.inf).softmax(-1)
            kept.append({new})
            return layer.out_proj(rearrange(weights @ v, {joined}))
        x = around(block, x, look_back, memory, {source_mask})
    return {logits}, {kept}
"""
        + written
    )


def _write(
    new="tokens[:, -1:]",
    returned="tokens[:, 1:]",
    token="logits[:, -1:].argmax(-1)",
    caches="caches",
    steps="11",
):
    return _decode(
        written=f"""
def write(source, source_mask):
    memory, caches = model.encode(source, source_mask), None
    tokens = torch.full((len(source), 1), dates.START)
    for _ in range({steps}):
        logits, new_caches = decode_new({new}, memory, source_mask, caches)
        caches = {caches.replace("caches", "new_caches")}
        tokens = torch.cat([tokens, {token}], dim=1)
    return {returned}
"""
    )


WRONG = [
    # Question 1
    ("predict", "a cache that forgets", _listed(work="15, 15, 27, 77"), 3, "a key is made once"),
    ("predict", "calls counted", _listed(work="3, 15, 27, 77"), 3, "4 in the first call"),
    ("predict", "word by word", _listed(work="6, 21, 27, 77"), 3, "three calls, not six"),
    ("predict", "allowed scores", _listed(work="6, 15, 21, 77"), 3, "with the hidden ones"),
    ("predict", "triangles", _listed(work="6, 15, 27, 46"), 3, "with the hidden ones"),
    ("predict", "whole squares", _listed(work="6, 15, 77, 77"), 3, "new words alone"),
    ("predict", "one square", _listed(work="6, 15, 27, 36"), 3, "a square of its own"),
    ("predict", "nothing forgotten", _listed(compared="2, 3, 7, 8"), 3, "only without a window"),
    ("predict", "two kept", _listed(compared="2, 3, 6, 3"), 3, "does the window count its own"),
    ("predict", "four kept", _listed(compared="2, 3, 7, 5"), 3, "the last three are kept"),
    ("predict", "new ones alone", _listed(compared="2, 1, 4, 1"), 3, "kept words are there"),
    ("predict", "the window alone", _listed(compared="2, 3, 3, 3"), 3, "the new ones are there as"),
    ("predict", "keys alone", _listed(gibibytes="31.5, 504, 15.75"), 3, "a 2 is missing"),
    ("predict", "query heads", _listed(gibibytes="1008, 1008, 504"), 3, "share 8 heads"),
    ("predict", "one layer", _listed(gibibytes="0.5, 8, 0.25"), 3, "Each of the 126 layers"),
    ("predict", "gigabytes", _listed(gibibytes="67.6457, 1082.33, 33.8229"), 3, "units of 10⁹"),
    ("predict", "a text alone", _listed(gibibytes="63, 1008, 1.96875"), 3, "there are 16"),
    ("predict", "as long", _listed(gibibytes="63, 1008, 63"), 3, "half of the first case"),
    ("predict", "multiply-adds", _listed(intensity="8, 8, 0.5, 16, 25"), 3, "is two FLOPs"),
    ("predict", "a number", _listed(intensity="32, 32, 2, 32, 7"), 3, "a number has two bytes"),
    ("predict", "all heads", _listed(intensity="128, 128, 1, 256, 2"), 3, "not by all"),
    ("predict", "texts share", _listed(intensity="16, 1024, 1, 32, 13"), 3, "a cache of its own"),
    ("predict", "one byte less", _listed(intensity="16, 16, 1, 8, 13"), 3, "what is divided grows"),
    ("predict", "rounded down", _listed(intensity="16, 16, 1, 32, 12"), 3, "it still waits"),
    ("predict", "no head shared", _listed(intensity="16, 16, 1, 32, 200"), 3, "16 FLOPs a byte"),
    # Question 2
    (
        "attend-new",
        "first beside first",
        _attend(mask="torch.ones(query.shape[2], keys.shape[2]).tril().bool()"),
        1,
        "lines up with the first key",
    ),
    (
        "attend-new",
        "no mask",
        _attend(mask="torch.ones(query.shape[2], keys.shape[2]).bool()"),
        2,
        "a call of several needs a mask",
    ),
    (
        "attend-new",
        "a mask of the new ones",
        _attend(mask="causal_mask(query.shape[2])"),
        2,
        "3 new queries meet 5 keys",
    ),
    (
        "attend-new",
        "a mask for the prompt alone",
        _attend(mask="torch.ones(query.shape[2], keys.shape[2]).tril(-1 if cache else 0).bool()"),
        1,
        "are not finite",
    ),
    (
        "attend-new",
        "nothing kept",
        _attend(keys="key", values="value"),
        0,
        "attends to its own positions alone",
    ),
    (
        "attend-new",
        "kept from the last call",
        _attend(cache="(key, value)"),
        0,
        "the keys of the call before",
    ),
    (
        "attend-new",
        "new ones in front",
        _attend(
            keys="torch.cat([key, cache[0]], dim=2)", values="torch.cat([value, cache[1]], dim=2)"
        ),
        2,
        "stand in front of the kept ones",
    ),
    (
        "attend-new",
        "axis of heads",
        _attend(
            keys="torch.cat([cache[0], key], dim=1)", values="torch.cat([cache[1], value], dim=1)"
        ),
        0,
        "joined along the axis of positions",
    ),
    (
        "attend-new",
        "axis of texts",
        _attend(
            keys="torch.cat([cache[0], key])", values="torch.cat([cache[1], value])",
        ),
        0,
        "joined along the axis of positions",
    ),
    (
        "attend-new",
        "axis of features",
        _attend(
            keys="torch.cat([cache[0], key], dim=-1)",
            values="torch.cat([cache[1], value], dim=-1)",
        ),
        0,
        "joined along the axis of positions",
    ),
    (
        "attend-new",
        "scaled keys kept",
        _attend(
            first="key / math.sqrt(key.shape[-1]), value",
            keys="torch.cat([cache[0], keys], dim=2)",
            scores="query @ keys.mT",
        ),
        3,
        "keep them as they came",
    ),
    ("attend-new", "no scale", _attend(scores="query @ keys.mT"), 1, "not divided by √d"),
    (
        "attend-new",
        "scale of e",
        _attend(scores="query @ keys.mT / math.sqrt(value.shape[-1])"),
        1,
        "divided by √e",
    ),
    (
        "attend-new",
        "does not see itself",
        _attend(
            mask="torch.ones(query.shape[2], keys.shape[2]).tril("
            "keys.shape[2] - query.shape[2] - 1).bool()",
            output="scores.softmax(-1).nan_to_num(0) @ values",
        ),
        1,
        "does not see itself",
    ),
    ("attend-new", "no cache returned", _attend(returned="output"), 0, "a pair is expected"),
    (
        "attend-new",
        "outputs of all",
        _attend(output="torch.cat([scores.softmax(-1) @ values] * 2, dim=2)"),
        1,
        "the output of the new positions is",
    ),
    # Question 3
    ("room", "shifted back", CLAMPED, 1, "written over the last ones"),
    ("room", "always the last place", LAST_PLACE, 1, "over the last one that was taken"),
    ("room", "cut off", CUT_OFF, 1, "the others are lost"),
    ("room", "a ring", RING, 1, "written over the first ones"),
    ("room", "the oldest forgotten", OLDEST, 1, "forgotten to make room"),
    ("room", "passed over in silence", PASSED_OVER, 1, "who called goes on without them"),
    ("room", "a new tensor", GROWN, 1, "nothing was written into the room"),
    (
        "room",
        "torch's own error",
        _room(check="False"),
        1,
        "Whoever gets that can't know that the room is full",
    ),
    ("room", "one place too few", _room(check="seen + new >= room"), 1, "they fit, and it is"),
    (
        "room",
        "numbers missing",
        _room(error="ValueError('the cache is full')"),
        2,
        "should have the three numbers",
    ),
    (
        "room",
        "written before the check",
        WRITTEN_FIRST,
        2,
        "a part of a refused piece lies behind",
    ),
    (
        "room",
        "always at the start",
        _room(place="slice(0, new)"),
        1,
        "in the room: at",
    ),
    (
        "room",
        "number of the new ones",
        _room(returned="keys[:, :, :seen + new], values[:, :, :seen + new], new"),
        1,
        "how many were new",
    ),
    (
        "room",
        "the number before",
        _room(returned="keys[:, :, :seen + new], values[:, :, :seen + new], seen"),
        1,
        "how many were taken before",
    ),
    ("room", "the whole room", _room(returned="keys, values, seen + new"), 2, "the whole room"),
    ("room", "the new ones", _room(returned="key, value, seen + new"), 2, "the new ones alone"),
    ("room", "two of three", _room(returned="keys, values"), 1, "three things"),
    ("room", "the first refusal ends it", _room(ending="break"), 2, "may still fit"),
    ("room", "counted from 1", _room(start="1"), 2, "counted from 0"),
    (
        "room",
        "lengths",
        _room(refused="refused.append(key.shape[2])"),
        2,
        "their numbers are asked for",
    ),
    ("room", "refusals not told", _room(refused="pass"), 2, "Nothing is refused"),
    # Question 4
    (
        "attend-shared",
        "in turns",
        _shared(split='"b (r g) i d -> b g r i d"', joined='"b g r i e -> b (r g) i e"'),
        0,
        "take turns with the key heads",
    ),
    (
        "attend-shared",
        "repeat of torch",
        _copied("keys.repeat(1, r, 1, 1)", "values.repeat(1, r, 1, 1)"),
        0,
        "take turns with the key heads",
    ),
    (
        "attend-shared",
        "keys in turns",
        _copied("keys.repeat(1, r, 1, 1)", "values.repeat_interleave(r, dim=1)"),
        0,
        "keys are taken in turns",
    ),
    (
        "attend-shared",
        "values in turns",
        _copied("keys.repeat_interleave(r, dim=1)", "values.repeat(1, r, 1, 1)"),
        0,
        "values are taken in turns",
    ),
    (
        "attend-shared",
        "copies",
        _copied("keys.repeat_interleave(r, dim=1)", "values.repeat_interleave(r, dim=1)"),
        2,
        "let the queries of a group stand beside each other",
    ),
    ("attend-shared", "broadcast", BROADCAST, 2, "stand beside each other"),
    (
        "attend-shared",
        "joined otherwise",
        _shared(joined='"b g r i e -> b (r g) i e"'),
        0,
        "come out in another order",
    ),
    (
        "attend-shared",
        "split otherwise",
        _shared(split='"b (r g) i d -> b g r i d"'),
        0,
        "split so that they take turns",
    ),
    (
        "attend-shared",
        "first head for all",
        _shared(keys="keys[:, :1].expand_as(keys)", values="values[:, :1].expand_as(values)"),
        0,
        "have the first key head",
    ),
    (
        "attend-shared",
        "average",
        _shared(
            keys="keys.mean(1, keepdim=True).expand_as(keys)",
            values="values.mean(1, keepdim=True).expand_as(values)",
        ),
        0,
        "key heads are averaged",
    ),
    (
        "attend-shared",
        "no mask",
        _shared(mask="torch.ones(i, j, dtype=torch.bool)"),
        2,
        "no key is hidden",
    ),
    (
        "attend-shared",
        "first beside first",
        _shared(mask="torch.ones(i, j, dtype=torch.bool).tril()"),
        0,
        "lines up with the first key",
    ),
    ("attend-shared", "no scale", _shared(scores="scores"), 0, "not divided by √d"),
    (
        "attend-shared",
        "not joined",
        _shared(joined='"b g r i e -> b g r i e"'),
        0,
        "join the heads again",
    ),
    (
        "attend-shared",
        "one output a group",
        _shared(joined='"b g r i e -> b g (r i) e"').replace("rearrange(heads", "(lambda x, _: "
        "x.mean(2))(heads"),
        0,
        "as many outputs as query heads",
    ),
    # Question 5
    (
        "attend-rolling",
        "one too many kept",
        _rolling(first="max(j - before - 1, 0)"),
        2,
        "the next query brings its own key",
    ),
    (
        "attend-rolling",
        "one too few kept",
        _rolling(first="max(j - max(before - 1, 0), 0)"),
        0,
        "keeps one position too few",
    ),
    (
        "attend-rolling",
        "all kept for a window of 0",
        _rolling(kept="key[:, :, -before:], value[:, :, -before:]"),
        2,
        "[-0:] is all of it",
    ),
    (
        "attend-rolling",
        "nothing forgotten",
        _rolling(first="0"),
        2,
        "everything is kept",
    ),
    (
        "attend-rolling",
        "the first ones kept",
        _rolling(kept="key[:, :, :before], value[:, :, :before]"),
        0,
        "these are the first ones",
    ),
    (
        "attend-rolling",
        "no left edge",
        _rolling(mask="causal_mask(i, j)"),
        2,
        "no left edge in a call",
    ),
    (
        "attend-rolling",
        "no mask",
        _rolling(mask="torch.ones(i, j, dtype=torch.bool)"),
        2,
        "no key is hidden in a call",
    ),
    (
        "attend-rolling",
        "one too small",
        _rolling(mask="window_mask(i, j, before=max(before - 1, 0))"),
        1,
        "the window is one too small",
    ),
    (
        "attend-rolling",
        "one too large",
        _rolling(
            mask="window_mask(i, j, before=before + 1)", first="max(j - before - 1, 0)"
        ),
        0,
        "the window is one too large",
    ),
    (
        "attend-rolling",
        "dropped before the call attends",
        _rolling(dropped="key, value = (x[:, :, -before - 1:] for x in (key, value))"),
        2,
        "keys are dropped before the call attends",
    ),
    (
        "attend-rolling",
        "first beside first",
        _rolling(mask=AT_THE_START),
        1,
        "lines up with the first key",
    ),
    (
        "attend-rolling",
        "no scale",
        _rolling(scores="query @ key.mT"),
        1,
        "not divided by √d",
    ),
    (
        "attend-rolling",
        "turned round",
        _rolling(kept="key[:, :, first:].flip(2), value[:, :, first:].flip(2)"),
        0,
        "the order is turned round",
    ),
    # Question 6
    ("dates", "always at place 0", _decode(start="0"), 0, "begins at place 0 again"),
    (
        "dates",
        "one place too high",
        _decode(start="caches[0][0].shape[2] + 1 if caches else 1"),
        0,
        "one too high",
    ),
    ("dates", "one cache for both", _decode(cache="caches[0] if caches else None"), 1,
     "each has its own"),
    ("dates", "nothing kept", _decode(cache="None"), 0, "positions of the last call"),
    (
        "dates",
        "first beside first",
        _decode(mask="torch.ones(i, j, dtype=torch.bool).tril()"),
        0,
        "lines up with the first key",
    ),
    (
        "dates",
        "no mask",
        _decode(mask="torch.ones(i, j, dtype=torch.bool)"),
        1,
        "sees later tokens of the same call",
    ),
    ("dates", "padding seen", _decode(source_mask="None"), 0, "padding of the source"),
    ("dates", "no norm", _decode(logits="model.to_logits(x)"), 2, "decoder_closing, is missing"),
    (
        "dates",
        "heads take turns",
        _decode(split='"b i (d h) -> b h i d"', joined='"b h i d -> b i (d h)"'),
        0,
        "neighbouring features are one head's",
    ),
    ("dates", "caches turned round", _decode(kept="kept[::-1]"), 0, "of another block"),
    ("dates", "keys and values swapped", _decode(new="(v, k)"), 0, "keys and values are swapped"),
    ("dates", "one cache returned", _decode(kept="kept[0]"), 0, "a list of 2 caches"),
    ("dates", "start returned", _write(returned="tokens"), 2, "is not returned"),
    ("dates", "all tokens in each call", _write(new="tokens"), 2, "where the model writes"),
    ("dates", "caches forgotten", _write(caches="caches and None"), 2, "begins anew"),
    ("dates", "least likely", _write(token="logits[:, -1:].argmin(-1)"), 2, "where the model"),
    ("dates", "too short", _write(steps="10"), 2, "tokens are (12, 11)"),
]  # fmt: skip


KERNEL = "torch.nn.functional.scaled_dot_product_attention"
BORROWED = [
    ("attend-new", "the package's attention",
     "from mini_attention import attention\n"
     + _attend(output="attention(query, keys, values, causal_mask(*scores.shape[2:]))")),
    ("attend-new", "torch's kernel",
     _attend(output=f"{KERNEL}(query, keys, values, causal_mask(*scores.shape[2:]))")),
    ("attend-shared", "torch's kernel for groups",
     "def attend_shared(query, keys, values):\n"
     "    mask = causal_mask(query.shape[2], keys.shape[2])\n"
     f"    return {KERNEL}(query, keys, values, mask, enable_gqa=True)"),
    ("attend-rolling", "a fused kernel",
     "import mini_attention as m\n"
     + _rolling().replace("scores.masked_fill(~window_mask(i, j, before=before), -torch.inf)"
                          ".softmax(-1) @ value",
                          "m.fused_attention(query, key, value, "
                          "window_mask(i, j, before=before))")),
    ("dates", "greedy", AROUND + """
from mini_attention import transformer

def write(source, source_mask):
    return transformer.greedy(model, source, source_mask, start=dates.START, steps=11)
"""),
    ("dates", "decode", AROUND + """
from mini_attention.decoding import DecoderCache, KVCache

def decode_new(tokens, memory, source_mask, caches):
    cache = DecoderCache(KVCache(11) for _ in model.decoder)
    logits = model.decode(tokens, memory, source_mask, cache=cache)
    return logits, [(block.back.keys, block.back.values) for block in cache.blocks]
"""),
]  # fmt: skip
