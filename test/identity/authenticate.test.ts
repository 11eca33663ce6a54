import t, { type Test } from "tap";
import { parseAccessFile } from "../../src/access/parse.ts";
import { authenticate, credentialOf } from "../../src/identity/authenticate.ts";
import { keyFilesIn } from "../../src/identity/key-file.ts";
import { openKeyRing, revokeKey, rotateKey } from "../../src/identity/key-store.ts";
import { createTokenAuthority } from "../../src/identity/token.ts";
import { hashWith, refusalOf, SALT, temporaryDirectory, user } from "../access/kit.ts";

/** Users as they are on file, a token of alice's, and who shows it. */
async function open(t: Test) {
  const directory = temporaryDirectory(t);
  const keys = keyFilesIn(directory, { checkRead: true });
  const load = () => openKeyRing(keys, "ES256");
  let ring = await load();
  const tokens = createTokenAuthority(() => ring, "gatehouse");
  const alice = parseAccessFile(user("alice"), "access.toml").users.get("alice");
  if (alice === undefined) throw new Error("there is no alice");
  const { token, claims } = await tokens.issue({
    username: "alice",
    database: "*",
    role: undefined,
    credential: credentialOf(alice),
    lifetime: 60,
    notBefore: 0,
  });
  const revoked = new Set<string>();
  return {
    keys,
    tokens,
    token,
    claims,
    revoked,
    async reload() {
      ring = await load();
    },
    /** The code by which alice is refused while the file says this. */
    refusal(file: string) {
      const snapshot = parseAccessFile(file, "access.toml");
      const revocations = { isRevoked: ({ tokenId }: { tokenId: string }) => revoked.has(tokenId) };
      const header = `Bearer ${token}`;
      return refusalOf(() => authenticate(tokens, snapshot, revocations, header));
    },
  };
}

t.test("a remembered token is held against the files each time that it is shown", async (t) => {
  const { refusal, revoked, claims } = await open(t);
  const good = user("alice");
  const hash = `password_hash = "${hashWith()}"`;
  const salt = `${SALT.slice(0, -2)}QQ`;
  const files: [why: string, file: string, code: string][] = [
    ["the user is gone", user("bob"), "user_gone"],
    ["the user is disabled", user("alice", `${hash}\ndisabled = true`), "token_revoked"],
    [
      "older tokens are ended",
      user("alice", `${hash}\ntokens_valid_after = ${claims.issuedAt}`),
      "token_revoked",
    ],
    ["the password is another", user("alice", hash.replace(SALT, salt)), "token_revoked"],
    ["there is no password", user("alice", ""), "token_revoked"],
  ];
  for (const [why, file, code] of files) {
    t.equal(refusal(good), undefined, "it is good");
    t.equal(refusal(file), code, why);
  }
  t.equal(refusal(good), undefined);
  revoked.add(claims.tokenId);
  t.equal(refusal(good), "token_revoked", "it was revoked");
  revoked.clear();
  t.equal(refusal(good), undefined, "none of that is remembered either");
});

t.test("a remembered token outlives a rotation, and not the revocation of its key", async (t) => {
  const { refusal, reload, keys } = await open(t);
  const file = user("alice");
  const [kid = ""] = await keys.names();
  t.equal(refusal(file), undefined);
  await rotateKey(keys, "ES256", 60);
  await reload();
  t.equal(refusal(file), undefined, "the old key verifies");
  t.equal(refusal(file), undefined);
  await revokeKey(keys, "ES256", kid);
  await reload();
  t.equal(refusal(file), "token_invalid", "the key is revoked");
  t.equal(refusal(file), "token_invalid");
});
