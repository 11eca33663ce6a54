/** Ways to lose a token or grant: by API, command or manual edit. */
import { decodePart } from "../identity/forge.ts";
import type { TestGateway } from "../kit/gateway.ts";
import { runWarm } from "../kit/warm-command.ts";
import { cheapHash, passwordOf, succeed } from "./staff.ts";

export interface Loss {
  readonly gateway: TestGateway;
  readonly name: string;
  readonly token: string;
  readonly root: string;
}

export interface Way {
  readonly how: string;
  readonly code: string;
  /** The code after an old access file was restored; undefined if only the file decides. */
  readonly afterRestore?: string;
  act(loss: Loss): Promise<unknown>;
}

type Act = Way["act"];

const byApi = (method: string, route: string, content?: unknown): Act => {
  return ({ gateway, name, root }) =>
    succeed(gateway.send(method, route.replace(":name", name), content, root));
};

const byItself = (method: string, route: string, content?: (name: string) => object): Act => {
  return ({ gateway, name, token }) =>
    succeed(gateway.send(method, route.replace(":name", name), content?.(name), token));
};

const byCommand = (flags: string, input?: string): Act => {
  return async ({ gateway, name, token }) => {
    const id = String(decodePart(token, 1).jti);
    const words = flags.replace(":name", name).replace(":token", id).split(" ");
    const { code, stderr } = await runWarm(gateway.home, words, input);
    if (code !== 0) throw new Error(`${flags}: ${stderr}`);
  };
};

const byHand = (change: (text: string, name: string) => string): Act => {
  return ({ gateway, name }) => gateway.edit((text) => change(text, name));
};

function recordOf(name: string): RegExp {
  return new RegExp(`\\[\\[\\w+]]\\nusername = "${name}"\\n(?:.+\\n)*\\n?`, "g");
}

const anew = "an entirely new one";
const hash = await cheapHash(anew);
const disabled = (text: string, name: string) =>
  text.replace(`username = "${name}"\n`, "$&disabled = true\n");
const rehashed = (text: string, name: string) =>
  text.replace(new RegExp(`(username = "${name}"\npassword_hash = )".+"`), (_, start) => {
    return `${start}"${hash}"`;
  });
const lowered = (text: string, name: string) =>
  text.replace(
    new RegExp(`(username = "${name}"\ndatabase = "main"\nrole = )"ReadWrite"`),
    '$1"ReadOnly"',
  );
const passwords = (name: string) => ({ old_password: passwordOf(name), new_password: anew });

const gone = { code: "user_gone", afterRestore: "token_revoked" };
const revoked = { code: "token_revoked", afterRestore: "token_revoked" };
const ungranted = { code: "no_grant" };
const demoted = { code: "role_insufficient" };
const role = { role: "ReadOnly" };

const table: [how: string, refusal: Pick<Way, "code" | "afterRestore">, act: Act][] = [
  ["the user is removed by the API", gone, byApi("DELETE", "/api/users/:name")],
  ["the user is removed by a command", gone, byCommand("user remove :name")],
  [
    "the user is taken out of the file",
    { code: "user_gone" },
    byHand((text, name) => text.replaceAll(recordOf(name), "")),
  ],
  [
    "the user is disabled by the API",
    revoked,
    byApi("PATCH", "/api/users/:name", { disabled: true }),
  ],
  ["the user is disabled by a command", revoked, byCommand("user disable :name")],
  ["the user is disabled in the file", revoked, byHand(disabled)],
  [
    "the password is changed by the API",
    revoked,
    byItself("PUT", "/api/users/:name/password", passwords),
  ],
  [
    "the password is changed by a command",
    revoked,
    byCommand("user password :name --password-stdin", anew),
  ],
  ["a new hash is pasted into the file", revoked, byHand(rehashed)],
  [
    "tokens_valid_after is raised in the file",
    revoked,
    ({ gateway, name, token }) => {
      const record = new RegExp(`(username = "${name}"\npassword_hash = .+\n)(tokens.+\n)?`);
      const line = `tokens_valid_after = ${decodePart(token, 1).iat}\n`;
      return gateway.edit((text) => text.replace(record, `$1${line}`));
    },
  ],
  [
    "an administrator revokes the user's tokens",
    revoked,
    byApi("DELETE", "/api/users/:name/tokens"),
  ],
  ["the user revokes its own tokens", revoked, byItself("DELETE", "/api/users/:name/tokens")],
  ["a command revokes the user's tokens", revoked, byCommand("token revoke --user :name")],
  ["the user logs out", revoked, byItself("POST", "/logout")],
  ["a command revokes the token", revoked, byCommand("token revoke :token")],
  ["the grant is taken by the API", ungranted, byApi("DELETE", "/api/access/:name/main")],
  ["the grant is taken by a command", ungranted, byCommand("access revoke :name main")],
  ["the grant is lowered by the API", demoted, byApi("PUT", "/api/access/:name/main", role)],
  ["the grant is lowered by a command", demoted, byCommand("access grant :name main ReadOnly")],
  ["the grant is lowered in the file", demoted, byHand(lowered)],
];

export const ways: readonly Way[] = table.map(([how, refusal, act]) => ({ how, ...refusal, act }));

/**
 * One way for each code, of those that have only that one: a user who is removed by the API may be
 * revoked before it is gone.
 */
const certain = ways.filter(({ code, afterRestore = code }) => afterRestore === code);
export const oneWayEach = certain.filter(
  ({ code }, at) => certain.findIndex((way) => way.code === code) === at,
);
