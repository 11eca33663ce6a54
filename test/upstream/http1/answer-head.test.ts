import t from "tap";
import { parseAnswerHead } from "../../../src/upstream/http1/answer-reader.ts";

function headOf(...lines: string[]) {
  return parseAnswerHead(lines.map((line) => `${line}\r\n`).join(""));
}

t.test("a head is read as it stands, names in their spelling", (t) => {
  const head = headOf("HTTP/1.1 200 OK", "Content-Length: 12", "X-Odd:\t a b \t", "x-odd: c");
  t.strictSame(head.headers, ["Content-Length", "12", "X-Odd", "a b", "x-odd", "c"]);
  t.match(head, { status: 200, framing: "length", length: 12, isKept: true });
  t.end();
});

t.test("where the body ends is told by one field alone", (t) => {
  t.match(headOf("HTTP/1.1 200 OK", "Transfer-Encoding: Chunked"), { framing: "chunked" });
  t.match(headOf("HTTP/1.1 200 OK"), { framing: "close", isKept: false });
  t.match(headOf("HTTP/1.1 304 -", "Content-Length: 5"), { framing: "none" });
  for (const status of [100, 103, 204]) {
    t.match(headOf(`HTTP/1.1 ${status} -`), { framing: "none" });
    for (const field of ["Content-Length: 5", "Content-Length: 0", "Transfer-Encoding: chunked"]) {
      t.throws(() => headOf(`HTTP/1.1 ${status} -`, field), { message: `content in a ${status}` });
    }
  }
  t.match(headOf("HTTP/1.1 205 -", "Content-Length: 0"), { framing: "length", length: 0 });
  t.match(headOf("HTTP/1.1 205 -", "Transfer-Encoding: chunked"), { framing: "chunked" });
  t.throws(() => headOf("HTTP/1.1 205 -", "Content-Length: 1"), { message: "content in a 205" });
  t.end();
});

t.test("a connection is kept where both sides say so", (t) => {
  const length = "Content-Length: 0";
  t.match(headOf("HTTP/1.0 200 OK", length), { isKept: false });
  t.match(headOf("HTTP/1.1 200 OK", length, "Connection: x, Close"), { isKept: false });
  t.match(headOf("HTTP/1.1 200 OK", length, "Connection: closed"), { isKept: true });
  t.match(headOf("HTTP/1.1 200 OK", length, "Keep-Alive: max=5, timeout=7"), { keepSeconds: 7 });
  t.end();
});

const broken = {
  "no version": ["200 OK"],
  "another version": ["HTTP/2.0 200 OK"],
  "a lower-case protocol": ["http/1.1 200 OK"],
  "two spaces before the status": ["HTTP/1.1  200 OK"],
  "a status of two digits": ["HTTP/1.1 20 OK"],
  "a status of four digits": ["HTTP/1.1 2000 OK"],
  "a status below 100": ["HTTP/1.1 099 OK"],
  "a control character in the reason": ["HTTP/1.1 200 O\0K"],
  "a bare CR in the reason": ["HTTP/1.1 200 O\rK"],
  "a bare LF between fields": ["HTTP/1.1 200 OK", "A: 1\nB: 2"],
  "a bare CR in a value": ["HTTP/1.1 200 OK", "A: 1\rB: 2"],
  "a NUL in a value": ["HTTP/1.1 200 OK", "A: 1\0"],
  "a folded field": ["HTTP/1.1 200 OK", "A: 1", " 2"],
  "a space before the colon": ["HTTP/1.1 200 OK", "Content-Length : 5"],
  "a space in a name": ["HTTP/1.1 200 OK", "Content Length: 5"],
  "no name": ["HTTP/1.1 200 OK", ": 5"],
  "no colon": ["HTTP/1.1 200 OK", "Content-Length"],
  "an empty line in the middle": ["HTTP/1.1 200 OK", "", "A: 1"],
  "two lengths": ["HTTP/1.1 200 OK", "Content-Length: 5", "Content-Length: 5"],
  "a list of lengths": ["HTTP/1.1 200 OK", "Content-Length: 5, 5"],
  "a signed length": ["HTTP/1.1 200 OK", "Content-Length: +5"],
  "a negative length": ["HTTP/1.1 200 OK", "Content-Length: -5"],
  "a hexadecimal length": ["HTTP/1.1 200 OK", "Content-Length: 0x5"],
  "an empty length": ["HTTP/1.1 200 OK", "Content-Length:"],
  "a length past counting": ["HTTP/1.1 200 OK", "Content-Length: 99999999999999999999"],
  "a length and chunks": ["HTTP/1.1 200 OK", "Content-Length: 5", "Transfer-Encoding: chunked"],
  "two encodings": ["HTTP/1.1 200 OK", "Transfer-Encoding: gzip, chunked"],
  "an unknown encoding": ["HTTP/1.1 200 OK", "Transfer-Encoding: xchunked"],
  "chunks twice": ["HTTP/1.1 200 OK", "Transfer-Encoding: chunked", "transfer-encoding: chunked"],
  "chunks in HTTP/1.0": ["HTTP/1.0 200 OK", "Transfer-Encoding: chunked"],
};

for (const [what, lines] of Object.entries(broken)) {
  t.test(`${what} is no answer`, (t) => {
    t.throws(() => headOf(...lines), { name: "BrokenAnswerError" });
    t.end();
  });
}
