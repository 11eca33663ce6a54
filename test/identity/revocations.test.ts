import { execFileSync } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { mock } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import t, { type Test } from "tap";
import { epochSeconds } from "../../src/core/base/clock.ts";
import {
  type LiveRevocations,
  openRevocations,
  readRevocations,
  revocationsIn,
} from "../../src/core/identity/revocations.ts";
import { openGatewaySetup } from "../gateway/kit.ts";
import { insertRefusal, openStaffed, soon, succeed, textOf, tokenOf } from "../journeys/staff.ts";
import { eventually } from "../kit/eventually.ts";
import type { TestGateway } from "../kit/gateway.ts";
import { temporaryHome } from "../kit/gateway.ts";
import { lackDescriptors } from "../kit/no-descriptor.ts";
import { runCommand } from "../kit/process.ts";
import { requireNoStall } from "../kit/stall.ts";
import { runWarm } from "../kit/warm-command.ts";
import { decodePart } from "./forge.ts";

function revocationsOf({ home }: TestGateway): string {
  return path.join(home, "revocations");
}

async function untilStale(gateway: TestGateway, expected: "stale" | "fresh"): Promise<void> {
  await eventually(`revocations are ${expected}`, async () => {
    const { status, body } = await gateway.request("/readyz");
    return status === 200 && body.revocations === expected;
  });
}

t.test("a revocation that cannot be written is refused", async (t) => {
  const { gateway } = await openStaffed(t, ["root * Owner", "bob main ReadWrite"]);
  const [root, bob] = [await tokenOf(gateway, "root"), await tokenOf(gateway, "bob")];
  const text = textOf(gateway);
  const file = revocationsOf(gateway);
  const obstacles: [what: string, put: () => void][] = [
    ["a directory in its place", () => mkdirSync(file)],
    ["a pipe in its place", () => execFileSync("mkfifo", ["-m", "600", file])],
    ["an invalid line", () => writeFileSync(file, "hunter2\n", { mode: 0o600 })],
    [
      "a file that others may write",
      () => {
        writeFileSync(file, "");
        chmodSync(file, 0o666);
      },
    ],
  ];
  for (const [what, put] of obstacles) {
    put();
    const before = statSync(file).isFile() ? readFileSync(file, "utf8") : undefined;
    const acts: [method: string, route: string, content: unknown, token: string][] = [
      ["POST", "/logout", undefined, bob],
      ["DELETE", "/api/users/bob/tokens", undefined, root],
      ["DELETE", "/api/users/bob", undefined, root],
      ["PUT", "/api/users/bob/password", { new_password: "a new password" }, root],
    ];
    for (const [method, route, content, token] of acts) {
      const answer = await gateway.send(method, route, content, token);
      t.equal(answer.status, 503, `${what}: ${method} ${route}`);
      t.equal(answer.body.code, "revocation_failed");
      t.match(answer.body.message, "Nothing was revoked");
    }
    for (const flags of ["token revoke 0b9c3bd1-8f3f-4a57-9a3c-5f3d3a1c7a43", "user remove bob"]) {
      const { code, stderr } = await runWarm(gateway.home, flags.split(" "));
      t.equal(code, 1, `${what}: ${flags}`);
      t.match(stderr, "Nothing was revoked");
      t.notMatch(stderr, "hunter2");
    }
    t.equal(await insertRefusal(gateway, bob), undefined, "the token still works");
    t.equal(textOf(gateway), text, "the access file is as it was");
    if (before !== undefined) t.equal(readFileSync(file, "utf8"), before);
    rmSync(file, { recursive: true });
  }
});

t.test("all tokens of a user end even if another process has just issued one ahead", async (t) => {
  const file = path.join(temporaryHome(t), "revocations");
  const onFailure = (error: unknown) => t.fail(String(error));
  const options = { checkRead: true, onFailure, onLost() {} };
  const gateway = await openRevocations(file, options);
  t.teardown(() => gateway.close());
  const issuedAt = epochSeconds() + 5;
  // The gateway has not read this yet.
  await revocationsIn(file, { checkRead: true }).revoke({ user: "bob", before: issuedAt });
  await gateway.revokeUser("bob");
  t.ok(gateway.isRevoked({ tokenId: "a", username: "bob", issuedAt }));
  await revocationsIn(file, { checkRead: true }).revokeUser("bob");
  await gateway.reload();
  t.ok(gateway.isRevoked({ tokenId: "a", username: "bob", issuedAt: issuedAt + 1 }));
});

t.test("an incomplete last line does not affect other revocations", async (t) => {
  const { gateway } = await openStaffed(t, ["root * Owner", "bob main ReadWrite"]);
  const file = revocationsOf(gateway);
  const [first, second] = [await tokenOf(gateway, "bob"), await tokenOf(gateway, "bob")];
  await succeed(gateway.send("POST", "/logout", undefined, first));
  const whole = readFileSync(file, "utf8");
  await gateway.service.stop();
  writeFileSync(file, `${whole}{"jti":"half`);

  const { gateway: restarted } = await openGatewaySetup(t, { home: gateway.home });
  t.equal(await insertRefusal(restarted, first), "token_revoked");
  t.equal((await restarted.request("/readyz")).body.revocations, "fresh");
  await succeed(restarted.send("POST", "/logout", undefined, second));
  t.equal(await insertRefusal(restarted, second), "token_revoked");
  const lines = readFileSync(file, "utf8").trimEnd().split("\n");
  t.equal(lines.length, 2, "the incomplete line is gone");
  t.ok(lines.every((line) => JSON.parse(line).jti !== "half"));
  t.equal(statSync(file).mode & 0o777, 0o600);
});

t.test("an invalid line prevents a start and changes nothing at run time", async (t) => {
  const { gateway } = await openStaffed(t, ["root * Owner", "bob main ReadWrite"]);
  const file = revocationsOf(gateway);
  const [dead, alive] = [await tokenOf(gateway, "bob"), await tokenOf(gateway, "bob")];
  await succeed(gateway.send("POST", "/logout", undefined, dead));
  const good = readFileSync(file, "utf8");

  writeFileSync(file, `${good}{"jti": "hunter2"}\n`);
  await untilStale(gateway, "stale");
  const logged = await gateway.service.logged(({ msg }) =>
    String(msg).startsWith("revocations refused"),
  );
  t.match(logged.reason, `${file}:2: `);
  t.notMatch(gateway.service.output, "hunter2");
  t.equal(await insertRefusal(gateway, dead), "token_revoked", "the last good state is in force");
  t.equal(await insertRefusal(gateway, alive), undefined);

  writeFileSync(file, good);
  await untilStale(gateway, "fresh");
  await gateway.service.stop();
  const wrong = [
    '{"jti": "x"}',
    '{"jti": 1, "until": 2}',
    '{"jti": "x", "until": "2"}',
    '{"jti": "x", "until": -1}',
    '{"jti": "x", "until": 2, "more": 3}',
    '{"user": "a b", "before": 1}',
    '{"user": "bob", "until": 1}',
    "[]",
    "null",
    "hunter2",
  ];
  for (const line of wrong) {
    writeFileSync(file, `${good}${line}\n${good}`);
    const reading = readRevocations(file, { checkRead: true });
    await t.rejects(reading, { name: "UnsafeFileError", message: `${file}:2: ` }, line);
  }
  const { code, stdout, stderr } = await runCommand(gateway.home, ["serve", "--port", "0"]);
  t.equal(code, 1);
  t.match(stdout + stderr, `${file}:2: `);
  t.notMatch(stdout + stderr, "hunter2");
});

t.test("tokens stay revoked when the file is deleted while the gateway runs", async (t) => {
  const { gateway } = await openStaffed(t, ["root * Owner", "bob main ReadWrite"]);
  const file = revocationsOf(gateway);
  const first = await tokenOf(gateway, "bob");
  const second = await tokenOf(gateway, "bob");
  const third = await tokenOf(gateway, "bob");
  await succeed(gateway.send("POST", "/logout", undefined, first));
  await succeed(gateway.send("POST", "/logout", undefined, second));
  const newest = readFileSync(file, "utf8");
  rmSync(file);
  await eventually("what was in force is written back", () => {
    const lines = existsSync(file) ? readFileSync(file, "utf8").split("\n") : [];
    return newest.split("\n").every((line) => lines.includes(line));
  });
  await gateway.service.logged(({ msg }) => String(msg).endsWith("written back"));
  await untilStale(gateway, "fresh");
  t.equal(statSync(file).mode & 0o777, 0o600);
  t.equal(await insertRefusal(gateway, first), "token_revoked");
  t.equal(await insertRefusal(gateway, second), "token_revoked");
  t.equal(await insertRefusal(gateway, third), undefined);

  const { jti } = decodePart(third, 1);
  t.equal((await runWarm(gateway.home, ["token", "revoke", String(jti)])).code, 0);
  await soon(t, "the command line's revocation is in force", async () => {
    return (await insertRefusal(gateway, third)) === "token_revoked";
  });
  t.equal(await insertRefusal(gateway, first), "token_revoked", "and the others still are");
});

t.test("revocations that cannot be written back stay in force", async (t) => {
  const { gateway } = await openStaffed(t, ["root * Owner", "bob main ReadWrite"]);
  const file = revocationsOf(gateway);
  const [dead, other] = [await tokenOf(gateway, "bob"), await tokenOf(gateway, "bob")];
  await succeed(gateway.send("POST", "/logout", undefined, dead));
  rmSync(file);
  mkdirSync(file);
  await untilStale(gateway, "stale");
  t.equal(await insertRefusal(gateway, dead), "token_revoked");
  rmSync(file, { recursive: true });
  await untilStale(gateway, "fresh");
  await succeed(gateway.send("POST", "/logout", undefined, other));
  t.equal(readFileSync(file, "utf8").trimEnd().split("\n").length, 2);
});

const later = Math.floor(Date.now() / 1000) + 3600;

t.test("all lines of a long file stay in force as the file changes", async (t) => {
  const file = path.join(temporaryHome(t), "revocations");
  const lines = Array.from({ length: 20_000 }, (_, n) =>
    JSON.stringify(n % 2 === 0 ? { jti: `t${n}`, until: later } : { user: `u${n}`, before: later }),
  );
  // The last line lacks its end, as an editor may leave it.
  writeFileSync(file, lines.join("\n"), { mode: 0o600 });
  const failures: unknown[] = [];
  const lost: number[] = [];
  const live = await openRevocations(file, {
    checkRead: true,
    onFailure: (error) => failures.push(error),
    onLost: (count) => lost.push(count),
  });
  t.teardown(() => live.close());
  const isInForce = (n: number) =>
    n % 2 === 0
      ? live.isRevoked({ tokenId: `t${n}`, username: "nobody", issuedAt: later })
      : live.isRevoked({ tokenId: "x", username: `u${n}`, issuedAt: later - 1 });
  const areAllInForce = () => lines.every((_, n) => isInForce(n));
  t.ok(areAllInForce());
  t.notOk(live.isRevoked({ tokenId: "x", username: "u1", issuedAt: later }));

  await live.revoke({ jti: "new", until: later });
  t.ok(live.isRevoked({ tokenId: "new", username: "any", issuedAt: later }), "at once");
  t.ok(areAllInForce(), "and the others still are");

  writeFileSync(file, `${lines.join("\n")}\nnonsense\n`);
  await live.reload();
  t.match(failures, [{ name: "UnsafeFileError", message: `${file}:20001: ` }]);
  t.ok(areAllInForce(), "an invalid line removes nothing");

  const taken: [how: string, text: string, count: number][] = [
    ["an empty file", "", 20_001],
    ["an older one", `${lines.slice(0, 15_000).join("\n")}\n`, 5001],
  ];
  for (const [how, text, count] of taken) {
    writeFileSync(file, text);
    await live.reload();
    t.equal(lost.pop(), count, how);
    t.ok(areAllInForce(), `${how} removes nothing`);
    t.equal(live.stale, false);
    t.equal(readFileSync(file, "utf8").trimEnd().split("\n").length, 20_001, "it is written back");
  }

  const restore = lackDescriptors((_, flags) => flags === "wx");
  writeFileSync(file, lines.slice(0, 15_000).join("\n"));
  await delay(2500);
  restore();
  t.strictSame(lost, [5001], "a loss that is known is not reported with each attempt");
  await eventually("it is written back", () => !live.stale);
});

/** Revocations in a file that neither fails nor loses any. */
async function openUndisturbed(t: Test, file: string): Promise<LiveRevocations> {
  const fail = (found: unknown) => t.fail(String(found));
  const options = { checkRead: true, onFailure: fail, onLost: fail };
  const revocations = await openRevocations(file, options);
  t.teardown(() => revocations.close());
  return revocations;
}

t.test("a revocation beside 60,000 others does not stall the event loop", async (t) => {
  const file = path.join(temporaryHome(t), "revocations");
  const until = Math.ceil(Date.now() / 1000) + 3600;
  const lines = Array.from({ length: 60_000 }, (_, index) =>
    JSON.stringify({ jti: `0b9c3bd1-8f3f-4a57-9a3c-${String(index).padStart(12, "0")}`, until }),
  );
  writeFileSync(file, `${lines.join("\n")}\n`, { mode: 0o600 });
  const revocations = await openUndisturbed(t, file);
  await requireNoStall(t, async (attempt) => {
    const tokenId = `attempt-${attempt}`;
    await revocations.revoke({ jti: tokenId, until });
    t.ok(revocations.isRevoked({ tokenId, username: "bob", issuedAt: until }));
  });
});

t.test("revocations that arrive together are written together", async (t) => {
  const file = path.join(temporaryHome(t), "revocations");
  const revocations = await openUndisturbed(t, file);
  const { mock: exec } = mock.method(DatabaseSync.prototype, "exec");
  t.teardown(() => exec.restore());
  const until = epochSeconds() + 3600;
  const names = Array.from({ length: 3000 }, (_, number) => `user-${number}`);
  await Promise.all([
    ...names.map((user) => revocations.revoke({ user, before: until })),
    ...names.map((jti) => revocations.revoke({ jti, until })),
  ]);
  const locked = exec.calls.filter(({ arguments: [sql] }) => sql === "BEGIN EXCLUSIVE");
  t.ok(locked.length <= 2, `the file was locked ${locked.length} times`);
  const stored = await revocationsIn(file, { checkRead: true }).read();
  t.equal(stored.count, 2 * names.length);
  for (const known of [stored, revocations]) {
    t.ok(names.every((name) => known.earliestIssue(name) === until));
    const token = { username: "bob", issuedAt: until };
    t.ok(names.every((tokenId) => known.isRevoked({ ...token, tokenId })));
  }
});
