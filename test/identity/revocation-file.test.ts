import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { openRevocations } from "../../src/identity/revocations.ts";
import { temporaryDirectory } from "../access/kit.ts";

const later = Math.floor(Date.now() / 1000) + 3600;

t.test("every line of a long file counts, before and after it has grown", async (t) => {
  const file = path.join(temporaryDirectory(t), "revocations");
  const lines = Array.from({ length: 20_000 }, (_, n) =>
    JSON.stringify(n % 2 === 0 ? { jti: `t${n}`, until: later } : { user: `u${n}`, before: later }),
  );
  // The last line lacks its end, as an editor may leave it.
  writeFileSync(file, lines.join("\n"), { mode: 0o600 });
  const failures: unknown[] = [];
  const onFailure = (error: unknown) => failures.push(error);
  const lost: number[] = [];
  const onLost = (count: number) => lost.push(count);
  const live = await openRevocations(file, { checkRead: true, onFailure, onLost });
  t.teardown(() => live.close());
  const isHeld = (n: number) =>
    n % 2 === 0
      ? live.isRevoked({ tokenId: `t${n}`, username: "nobody", issuedAt: later })
      : live.isRevoked({ tokenId: "x", username: `u${n}`, issuedAt: later - 1 });
  const areAllHeld = () => lines.every((_, n) => isHeld(n));
  t.ok(areAllHeld());
  t.notOk(live.isRevoked({ tokenId: "x", username: "u1", issuedAt: later }));

  await live.revokeToken({ tokenId: "new", expiresAt: later });
  t.ok(live.isRevoked({ tokenId: "new", username: "nobody", issuedAt: later }), "at once");
  t.ok(areAllHeld(), "and the others still are");

  writeFileSync(file, `${lines.join("\n")}\nnonsense\n`);
  await live.reload();
  t.match(failures, [{ name: "RevocationFileError", line: 20_001 }]);
  t.ok(areAllHeld(), "a line that is none takes nothing away");

  const taken: [how: string, text: string, count: number][] = [
    ["an empty file", "", 20_001],
    ["an older one", `${lines.slice(0, 15_000).join("\n")}\n`, 5001],
  ];
  for (const [how, text, count] of taken) {
    writeFileSync(file, text);
    await live.reload();
    t.equal(lost.pop(), count, how);
    t.ok(areAllHeld(), `${how} takes nothing away`);
    t.equal(live.stale, false);
    t.equal(readFileSync(file, "utf8").trimEnd().split("\n").length, 20_001, "it is written back");
  }
});
