import type { Command } from "commander";
import { epochSeconds } from "../clock.ts";
import { keyState, revokeKey, rotateKey } from "../identity/key-store.ts";
import { loadFor } from "./load.ts";
import { keysOf, noteChanges } from "./operator.ts";
import { type CommonOptions, commandGroup, subcommand } from "./options.ts";
import { momentOf, momentOrNull, print, printList } from "./output.ts";

async function list(options: CommonOptions): Promise<void> {
  const keys = await (await keysOf(loadFor(options))).read();
  const now = epochSeconds();
  // Never print the key itself.
  const shown = keys.map((key) => ({
    kid: key.kid,
    alg: key.alg,
    state: keyState(key, now),
    created: momentOf(key.created),
    verifies_until: momentOrNull(key.verifies_until ?? 0),
  }));
  const head = ["KID", "ALG", "STATE", "CREATED", "VERIFIES UNTIL"];
  printList(shown, options, head, ({ kid, alg, state, created, verifies_until: until }) => [
    ...[kid, alg, state, created, until ?? "-"],
  ]);
}

async function rotate(options: CommonOptions): Promise<void> {
  const loaded = loadFor(options);
  const { signing_algorithm: algorithm, token_expiration: lifetime } = loaded.configuration.auth;
  const { kid } = await rotateKey(await keysOf(loaded), algorithm, lifetime);
  await noteChanges(loaded, [{ change: "key added", key: kid }]);
  print(`New tokens are signed by ${kid}; nobody is logged out.`);
}

async function revoke(kid: string, options: CommonOptions): Promise<void> {
  const loaded = loadFor(options);
  await revokeKey(await keysOf(loaded), loaded.configuration.auth.signing_algorithm, kid);
  await noteChanges(loaded, [{ change: "key revoked", key: kid }]);
  print(`Deleted ${kid}: every token that it has signed stops working.`);
}

export function keyCommand(): Command {
  const key = commandGroup("key", "list, rotate and revoke the keys that sign tokens");
  subcommand(key, "list")
    .description("list the signing keys")
    .option("--json", "as JSON")
    .action(list);
  subcommand(key, "rotate")
    .description("sign with a new key from now on; tokens that are out stay good")
    .action(rotate);
  subcommand(key, "revoke")
    .description("delete a key that has leaked, and with it all its tokens")
    .argument("<kid>", "the key's id, as `key list` shows it")
    .action(revoke);
  return key;
}
