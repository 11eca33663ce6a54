import t from "tap";
import {
  costBounds,
  formatPasswordHash,
  parsePasswordHash,
} from "../../src/core/access/password-hash.ts";
import { DIGEST, hashWith, SALT } from "./kit.ts";

const orders = ["m,t,p", "m,p,t", "t,m,p", "t,p,m", "p,m,t", "p,t,m"];

t.test("the parameters are read in any order and written in one", async (t) => {
  const values = new Map([
    ["m", "65536"],
    ["t", "3"],
    ["p", "4"],
  ]);
  for (const order of orders) {
    const parameters = order.split(",").map((name) => `${name}=${values.get(name)}`);
    const hash = parsePasswordHash(hashWith(parameters.join(",")));
    t.strictSame(hash?.costs, { memory: 65536, time: 3, parallelism: 4 }, order);
    t.equal(hash && formatPasswordHash(hash), hashWith("m=65536,t=3,p=4"));
  }
});

t.test("salt and hash are the bytes that were written", async (t) => {
  const hash = parsePasswordHash(hashWith());
  t.strictSame(hash?.salt, Buffer.from(SALT, "base64"));
  t.strictSame(hash?.hash, Buffer.from(DIGEST, "base64"));
});

t.test("each cost is accepted up to its bounds and refused past them", async (t) => {
  const accepts = (parameters: string) => parsePasswordHash(hashWith(parameters)) !== undefined;
  const [leastMemory, mostMemory] = costBounds.memory;
  t.strictSame([leastMemory, mostMemory], [8, 1_048_576]);
  for (const memory of [8, 9, 1_048_576]) t.ok(accepts(`m=${memory},t=1,p=1`), `m=${memory}`);
  for (const memory of [0, 7, 1_048_577]) t.notOk(accepts(`m=${memory},t=1,p=1`), `m=${memory}`);
  for (const cost of [1, 2, 64]) {
    t.ok(accepts(`m=512,t=${cost},p=1`), `t=${cost}`);
    t.ok(accepts(`m=512,t=1,p=${cost}`), `p=${cost}`);
  }
  for (const cost of [0, 65, 9_999_999]) {
    t.notOk(accepts(`m=1048576,t=${cost},p=1`), `t=${cost}`);
    t.notOk(accepts(`m=1048576,t=1,p=${cost}`), `p=${cost}`);
  }
});

t.test("each lane needs 8 KiB", async (t) => {
  t.ok(parsePasswordHash(hashWith("m=32,t=1,p=4")));
  t.notOk(parsePasswordHash(hashWith("m=31,t=1,p=4")));
  t.notOk(parsePasswordHash(hashWith("m=064,t=1,p=4")), "a number has one spelling");
});
