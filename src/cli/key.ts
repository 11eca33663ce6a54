import type { Command } from "commander";
import { epochSeconds } from "../core/base/clock.ts";
import { keyState, revokeKey, rotateKey } from "../core/identity/key-store.ts";
import { keyStore, noteChanges } from "./operator.ts";
import { type CommonOptions, commandGroup, defineCommands, loadFor } from "./options.ts";
import { formatMoment, momentOrNull, print, printList } from "./output.ts";

async function list(options: CommonOptions): Promise<void> {
  const keys = await (await keyStore(loadFor(options))).read();
  const now = epochSeconds();
  // Pick the members, so that no private key is printed.
  const shown = keys.map((key) => ({
    kid: key.kid,
    alg: key.alg,
    state: keyState(key, now),
    created: formatMoment(key.created),
    verifies_until: momentOrNull(key.verifies_until ?? 0),
  }));
  const head = ["KID", "ALG", "STATE", "CREATED", "VERIFIES UNTIL"];
  printList(shown, options, head, ({ kid, alg, state, created, verifies_until: until }) => [
    kid,
    alg,
    state,
    created,
    until ?? "-",
  ]);
}

async function rotate(options: CommonOptions): Promise<void> {
  const loaded = loadFor(options);
  const { signing_algorithm: algorithm, token_expiration: lifetime } = loaded.configuration.auth;
  const { kid } = await rotateKey(await keyStore(loaded), algorithm, lifetime);
  await noteChanges(loaded, [{ change: "key added", key: kid }]);
  print(`New tokens are signed with key ${kid}. Existing tokens stay valid.`);
}

async function revoke(kid: string, options: CommonOptions): Promise<void> {
  const loaded = loadFor(options);
  await revokeKey(await keyStore(loaded), loaded.configuration.auth.signing_algorithm, kid);
  await noteChanges(loaded, [{ change: "key revoked", key: kid }]);
  print(`Deleted key ${kid}. Every token that it signed stops working.`);
}

const help = `
list --json     list the signing keys
rotate          start signing with a new key; existing tokens stay valid
revoke          delete a leaked key; every token that it signed stops working
  <kid>         the key id, as shown by "key list"
`;

export function keyCommand(): Command {
  const commands = defineCommands(help, { list, rotate, revoke });
  return commandGroup("key", "list, rotate and revoke the keys that sign tokens", commands);
}
