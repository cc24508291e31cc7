"""The peers of `./run bench tokenizer`: takes one command a line on standard input, answers one line each.

names | load TOKENIZER.json | corpus FILE | encode PEER | decode PEER
A pass answers: processor seconds, number of ids (or bytes), CRC-32 of the ids as int32 (or of the text).
"""
import array
import json
import sys
import time
import zlib


class HuggingFace:
    def __init__(self):
        import tokenizers
        self.library = tokenizers
        self.name = "tokenizers " + tokenizers.__version__
        self.tokenizer = None

    def load(self, path):
        self.tokenizer = self.library.Tokenizer.from_file(path)
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()

    def encode(self, documents):  # without offsets: the library's fastest way
        return [e.ids for e in self.tokenizer.encode_batch_fast(documents, add_special_tokens=False)]

    def decode(self, ids):
        return self.tokenizer.decode_batch(ids, skip_special_tokens=False)


class Tiktoken:
    def __init__(self):
        import tiktoken
        self.library = tiktoken
        self.name = "tiktoken " + tiktoken.__version__
        self.encoding = None

    def load(self, path):
        """A byte-level BPE file as ranks; anything else is not for tiktoken."""
        self.encoding = None
        with open(path) as f:
            data = json.load(f)
        pre = data["pre_tokenizer"] or {}
        parts = pre.get("pretokenizers", [pre])
        patterns = [p["pattern"]["Regex"] for p in parts if p.get("type") == "Split" and "Regex" in p["pattern"]]
        if data["model"]["type"] != "BPE" or not any(p.get("type") == "ByteLevel" for p in parts) or len(patterns) > 1:
            return
        gpt2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
        to_byte, extra = {}, 0
        for b in range(256):
            if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255:
                to_byte[chr(b)] = b
            else:
                to_byte[chr(256 + extra)] = b
                extra += 1
        special = {t["content"]: t["id"] for t in data["added_tokens"]}
        ranks = {}
        for token, rank in data["model"]["vocab"].items():
            if token not in special:
                ranks[bytes(to_byte[c] for c in token)] = rank
        self.encoding = self.library.Encoding(name="bench", pat_str=patterns[0] if patterns else gpt2,
                                              mergeable_ranks=ranks, special_tokens=special)

    def encode(self, documents):
        encode = self.encoding.encode_ordinary
        return [encode(d) for d in documents]

    def decode(self, ids):
        decode = self.encoding.decode
        return [decode(i) for i in ids]


def main():
    peers, documents, encoded = [], [], {}
    for peer in (HuggingFace, Tiktoken):
        try:
            peers.append(peer())
        except ImportError:
            pass
    for line in sys.stdin:
        words = line.rstrip("\n").split(" ", 1)
        answer = "ok"
        try:
            if words[0] == "names":
                answer = ",".join(p.name for p in peers)
            elif words[0] == "load":
                for p in peers:
                    p.load(words[1])
            elif words[0] == "corpus":
                with open(words[1], "rb") as f:
                    data = f.read()
                documents, at, encoded = [], 0, {}
                while at < len(data):
                    end = data.index(b"\n", at)
                    size = int(data[at:end])
                    documents.append(data[end + 1:end + 1 + size].decode())
                    at = end + 1 + size
            else:
                number = int(words[1])
                peer = peers[number]
                if words[0] == "encode":
                    start = time.process_time()
                    ids = peer.encode(documents)
                    seconds = time.process_time() - start
                    encoded[number] = ids
                    crc = 0
                    for one in ids:
                        crc = zlib.crc32(array.array("i", one).tobytes(), crc)
                    answer = f"{seconds} {sum(map(len, ids))} {crc}"
                else:
                    ids = encoded[number]
                    start = time.process_time()
                    texts = peer.decode(ids)
                    seconds = time.process_time() - start
                    crc, size = 0, 0
                    for one in texts:
                        one = one.encode()
                        crc = zlib.crc32(one, crc)
                        size += len(one)
                    answer = f"{seconds} {size} {crc}"
        except Exception as error:
            answer = "error " + str(error).replace("\n", " ")
        print(answer, flush=True)


if __name__ == "__main__":
    main()
