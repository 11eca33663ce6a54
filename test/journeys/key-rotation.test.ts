import { readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { openSetting } from "../gateway/kit.ts";
import { decodePart, readKey, readKeys } from "../identity/forge.ts";
import { eventually } from "../kit/eventually.ts";
import type { TestGateway } from "../kit/gateway.ts";
import { runWarm } from "../kit/warm-command.ts";
import { insertRefusal, openStaffed, soon, tokenOf } from "./staff.ts";

const grants = ["root * Owner", "bob main ReadWrite"];

async function gatehouse(gateway: TestGateway, flags: string): Promise<string> {
  const { code, stdout, stderr } = await runWarm(gateway.home, flags.split(" "));
  if (code !== 0) throw new Error(`${flags}: ${stderr}`);
  return stdout.trim();
}

/** The names of the published keys. */
async function published(gateway: TestGateway): Promise<string[]> {
  const { text } = await gateway.request("/.well-known/jwks.json");
  return JSON.parse(text).keys.map((key: { kid: string }) => key.kid);
}

async function signer(gateway: TestGateway): Promise<unknown> {
  return decodePart(await tokenOf(gateway, "bob"), 0).kid;
}

function keyFileOf({ home }: TestGateway, kid: string): string {
  return path.join(home, "keys", `${kid}.json`);
}

/** Says in a key's file until when it verifies, as the command line writes it. */
function retire(gateway: TestGateway, kid: string, until: number): void {
  const file = keyFileOf(gateway, kid);
  const key = JSON.parse(readFileSync(file, "utf8"));
  const next = path.join(path.dirname(file), ".next");
  writeFileSync(next, JSON.stringify({ ...key, verifies_until: until }), { mode: 0o600 });
  renameSync(next, file);
}

for (const algorithm of ["ES256", "HS256"]) {
  t.test(`a rotation of ${algorithm} keys logs nobody out`, async (t) => {
    const auth = `signing_algorithm = "${algorithm}"`;
    const { gateway } = await openStaffed(t, grants, { auth });
    const { kid: old } = readKey(gateway.home);
    const tokens = [await tokenOf(gateway, "bob"), await gatehouse(gateway, "token issue bob")];
    await gatehouse(gateway, "key rotate");
    const made = readKeys(gateway.home).find(({ kid }) => kid !== old)?.kid;
    await soon(t, "the new key signs", async () => (await signer(gateway)) === made);
    for (const token of tokens) t.equal(await insertRefusal(gateway, token), undefined);
    t.same(new Set(await published(gateway)), new Set(algorithm === "HS256" ? [] : [made, old]));

    tokens.push(await tokenOf(gateway, "bob"));
    await gateway.service.stop();
    const { gateway: restarted } = await openSetting(t, { home: gateway.home, auth });
    for (const token of tokens) t.equal(await insertRefusal(restarted, token), undefined);
    t.equal(await signer(restarted), made);
  });
}

t.test("a key whose last token has expired verifies nothing and is not published", async (t) => {
  const { gateway } = await openStaffed(t, grants);
  const { kid: old } = readKey(gateway.home);
  const token = await tokenOf(gateway, "bob");
  await gatehouse(gateway, "key rotate");
  const now = Math.floor(Date.now() / 1000);
  retire(gateway, old, now + 3);
  await eventually("it has left by itself", async () => !(await published(gateway)).includes(old));
  t.ok(Date.now() / 1000 >= now + 3, "not before its time");
  t.equal(await insertRefusal(gateway, token), "token_invalid");
  await gateway.service.stop();

  const { gateway: restarted } = await openSetting(t, { home: gateway.home });
  t.notOk((await published(restarted)).includes(old));
  t.equal(await insertRefusal(restarted, token), "token_invalid");
  await gatehouse(restarted, "key rotate");
  t.notOk(
    readKeys(gateway.home).some(({ kid }) => kid === old),
    "the next rotation deletes it",
  );
});

t.test("a key that is said to be past is dropped within a second", async (t) => {
  const { gateway } = await openStaffed(t, grants);
  const { kid: old } = readKey(gateway.home);
  const token = await tokenOf(gateway, "bob");
  await gatehouse(gateway, "key rotate");
  retire(gateway, old, 1);
  await soon(t, "its tokens are refused", async () => {
    return (await insertRefusal(gateway, token)) === "token_invalid";
  });
  t.notOk((await published(gateway)).includes(old));
});

t.test("a revoked key takes its tokens with it, also the one that signs", async (t) => {
  const { gateway } = await openStaffed(t, grants);
  const { kid: first } = readKey(gateway.home);
  const tokens = [await tokenOf(gateway, "bob"), await gatehouse(gateway, "token issue bob")];
  await gatehouse(gateway, "key rotate");
  await eventually("the new key signs", async () => (await signer(gateway)) !== first);
  const survivor = await tokenOf(gateway, "bob");
  await gatehouse(gateway, `key revoke ${first}`);
  for (const token of tokens) {
    await soon(t, "a token of the old key is refused", async () => {
      return (await insertRefusal(gateway, token)) === "token_invalid";
    });
  }
  t.equal(await insertRefusal(gateway, survivor), undefined);

  const { kid: second } = readKey(gateway.home);
  await gatehouse(gateway, `key revoke ${second}`);
  await soon(t, "a token of the signer is refused", async () => {
    return (await insertRefusal(gateway, survivor)) === "token_invalid";
  });
  const { kid: third } = readKey(gateway.home);
  t.strictSame(await published(gateway), [third]);
  t.equal(await insertRefusal(gateway, await tokenOf(gateway, "bob")), undefined);
});

t.test("a broken file among the keys keeps no deleted key alive", async (t) => {
  const { gateway } = await openStaffed(t, grants);
  const { kid: old } = readKey(gateway.home);
  const leaked = await tokenOf(gateway, "bob");
  await gatehouse(gateway, "key rotate");
  await eventually("the new key signs", async () => (await signer(gateway)) !== old);
  const good = await tokenOf(gateway, "bob");

  writeFileSync(keyFileOf(gateway, "broken"), '{"d": "hunter2"', { mode: 0o600 });
  await gateway.service.logged(({ msg }) => String(msg).startsWith("signing keys refused"));
  t.equal(await insertRefusal(gateway, leaked), undefined, "nobody is logged out by that");
  rmSync(keyFileOf(gateway, old));
  await soon(t, "the deleted key's token is refused", async () => {
    return (await insertRefusal(gateway, leaked)) === "token_invalid";
  });
  t.notOk((await published(gateway)).includes(old), "nor is the key published");
  t.equal(await insertRefusal(gateway, good), undefined);
  t.equal(await insertRefusal(gateway, await tokenOf(gateway, "bob")), undefined);
  t.notMatch(gateway.service.output, "hunter2");

  rmSync(keyFileOf(gateway, "broken"));
  await gatehouse(gateway, "key rotate");
  const made = readKeys(gateway.home).find(({ kid }) => kid !== decodePart(good, 0).kid)?.kid;
  await soon(t, "without it new keys are taken", async () => (await signer(gateway)) === made);
});
