import t from "tap";
import { parseAccessFile } from "../../src/access/parse.ts";
import type { HashCosts } from "../../src/access/password-hash.ts";
import { costsOnFile, type Derive, deriveHere, type HashOrder } from "../../src/identity/hash.ts";
import {
  hashPassword,
  requireUsablePassword,
  verifyPassword,
} from "../../src/identity/password.ts";
import { user } from "../access/kit.ts";

const configured = { memory: 128, time: 2, parallelism: 1 };
const lower = { memory: 64, time: 1, parallelism: 1 };
const higher = { memory: 256, time: 2, parallelism: 2 };
const PASSWORD = "correct horse";

/** Derives, and remembers at which costs. */
function counted(): { derive: Derive; spent: HashCosts[] } {
  const spent: HashCosts[] = [];
  const derive = (order: HashOrder) => {
    spent.push(order.costs);
    return deriveHere(order);
  };
  return { derive, spent };
}

async function record(name: string, costs: HashCosts, lines = ""): Promise<string> {
  return user(name, `password_hash = "${await hashPassword(PASSWORD, costs)}"\n${lines}`);
}

t.test("whoever logs in, the same hashes are derived", async (t) => {
  const file = [
    await record("usual", configured),
    await record("imported", lower),
    await record("early", lower, "disabled = true\n"),
    (await record("strong", higher)).replace("m=256,t=2,p=2", "p=2,m=256,t=2"),
    user("machine", ""),
  ];
  const snapshot = parseAccessFile(file.join(""), "access.toml");
  const costs = await costsOnFile(snapshot, configured);
  t.equal(costs.length, 3, "each costs once, however they are spelled");
  for (const name of ["usual", "imported", "strong", "machine", "unknown"]) {
    const onFile = snapshot.users.get(name)?.passwordHash;
    for (const password of [PASSWORD, "a wrong one", ""]) {
      const { derive, spent } = counted();
      const isRight = await verifyPassword(password, onFile, costs, derive);
      t.equal(isRight, password === PASSWORD && onFile !== undefined, `${name}: ${password}`);
      t.strictSame(spent, costs);
    }
  }
});

t.test("the configured costs are spent where no user has a password", async (t) => {
  const snapshot = parseAccessFile(user("machine", ""), "access.toml");
  t.strictSame(await costsOnFile(snapshot, configured), [configured]);
  t.equal(await costsOnFile(snapshot, configured), await costsOnFile(snapshot, configured));
});

t.test("a hash of costs that nobody has told of matches nothing", async (t) => {
  const hash = await hashPassword(PASSWORD, lower);
  t.notOk(await verifyPassword(PASSWORD, hash, [configured]));
});

t.test("what can be no password is not hashed", async (t) => {
  const hash = await hashPassword(PASSWORD, lower);
  for (const password of ["x".repeat(1025), "é".repeat(513), "\ud800 password"]) {
    const { derive, spent } = counted();
    t.notOk(await verifyPassword(password, hash, [lower], derive));
    t.strictSame(spent, []);
  }
});

t.test("a password counts to its last byte", async (t) => {
  for (const password of ["before\0after", "x".repeat(1024), "  spaces  ", "пароль 密码 🔑"]) {
    requireUsablePassword(password);
    const hash = await hashPassword(password, lower);
    t.ok(await verifyPassword(password, hash, [lower]));
    t.notOk(await verifyPassword(password.slice(0, -1), hash, [lower]));
    t.notOk(await verifyPassword("before", hash, [lower]));
  }
});

t.test("the same characters are the same password on every keyboard", async (t) => {
  const composed = "caf\u00e9 cr\u00e8me";
  const decomposed = composed.normalize("NFD");
  t.not(composed, decomposed);
  for (const [set, typed] of [
    [composed, decomposed],
    [decomposed, composed],
  ]) {
    const hash = await hashPassword(set ?? "", lower);
    t.ok(await verifyPassword(typed ?? "", hash, [lower]));
    t.notOk(await verifyPassword("cafe creme", hash, [lower]), "and letters keep their accents");
  }
  t.throws(() => requireUsablePassword("\u0065\u0301".repeat(7)), { code: "password_too_short" });
  t.notOk(
    await verifyPassword("ﬁle password", await hashPassword("file password", lower), [lower]),
    "what only looks alike stays another one",
  );
});
