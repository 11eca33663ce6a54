/** The ways in which a token or a grant is lost, each by API, command line or by hand. */
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
  /** What is said once an old access file was put back; undefined where the file alone decides. */
  readonly afterRestore?: string;
  act(loss: Loss): Promise<unknown>;
}

async function gatehouse({ gateway }: Loss, flags: string, input?: string): Promise<void> {
  const { code, stderr } = await runWarm(gateway.home, flags.split(" "), input);
  if (code !== 0) throw new Error(`${flags}: ${stderr}`);
}

function api({ gateway, root }: Loss, method: string, route: string, content?: unknown) {
  return succeed(gateway.send(method, route, content, root));
}

function recordOf(name: string): RegExp {
  return new RegExp(`\\[\\[\\w+]]\\nusername = "${name}"\\n(?:.+\\n)*\\n?`, "g");
}

const anew = "an entirely new one";
const revoked = { code: "token_revoked", afterRestore: "token_revoked" };

export const ways: Way[] = [
  {
    how: "the user is removed by the API",
    code: "user_gone",
    afterRestore: "token_revoked",
    act: (loss) => api(loss, "DELETE", `/api/users/${loss.name}`),
  },
  {
    how: "the user is removed at the command line",
    code: "user_gone",
    afterRestore: "token_revoked",
    act: (loss) => gatehouse(loss, `user remove ${loss.name}`),
  },
  {
    how: "the user is taken out of the file",
    code: "user_gone",
    act: ({ gateway, name }) => gateway.edit((text) => text.replaceAll(recordOf(name), "")),
  },
  {
    how: "the user is disabled by the API",
    ...revoked,
    act: (loss) => api(loss, "PATCH", `/api/users/${loss.name}`, { disabled: true }),
  },
  {
    how: "the user is disabled at the command line",
    ...revoked,
    act: (loss) => gatehouse(loss, `user disable ${loss.name}`),
  },
  {
    how: "the user is disabled in the file",
    ...revoked,
    act: ({ gateway, name }) =>
      gateway.edit((text) => text.replace(`username = "${name}"\n`, "$&disabled = true\n")),
  },
  {
    how: "the password is changed by the API",
    ...revoked,
    act: ({ gateway, name, token }) => {
      const content = { old_password: passwordOf(name), new_password: anew };
      return succeed(gateway.send("PUT", `/api/users/${name}/password`, content, token));
    },
  },
  {
    how: "the password is changed at the command line",
    ...revoked,
    act: (loss) => gatehouse(loss, `user password ${loss.name} --password-stdin`, anew),
  },
  {
    how: "a new hash is pasted into the file",
    code: "token_revoked",
    act: async ({ gateway, name }) => {
      const hash = await cheapHash(anew);
      const record = new RegExp(`(username = "${name}"\npassword_hash = )".+"`);
      await gateway.edit((text) => text.replace(record, (_, start) => `${start}"${hash}"`));
    },
  },
  {
    how: "an administrator revokes all tokens of the user",
    ...revoked,
    act: (loss) => api(loss, "DELETE", `/api/users/${loss.name}/tokens`),
  },
  {
    how: "the user revokes all its tokens",
    ...revoked,
    act: ({ gateway, name, token }) =>
      succeed(gateway.send("DELETE", `/api/users/${name}/tokens`, undefined, token)),
  },
  {
    how: "all tokens of the user are revoked at the command line",
    ...revoked,
    act: (loss) => gatehouse(loss, `token revoke --user ${loss.name}`),
  },
  {
    how: "the user logs out",
    ...revoked,
    act: ({ gateway, token }) => succeed(gateway.send("POST", "/logout", undefined, token)),
  },
  {
    how: "the token is revoked at the command line",
    ...revoked,
    act: (loss) => gatehouse(loss, `token revoke ${decodePart(loss.token, 1).jti}`),
  },
  {
    how: "the grant is taken by the API",
    code: "no_grant",
    act: (loss) => api(loss, "DELETE", `/api/access/${loss.name}/main`),
  },
  {
    how: "the grant is taken at the command line",
    code: "no_grant",
    act: (loss) => gatehouse(loss, `access revoke ${loss.name} main`),
  },
  {
    how: "the grant is lowered by the API",
    code: "role_insufficient",
    act: (loss) => api(loss, "PUT", `/api/access/${loss.name}/main`, { role: "ReadOnly" }),
  },
  {
    how: "the grant is lowered at the command line",
    code: "role_insufficient",
    act: (loss) => gatehouse(loss, `access grant ${loss.name} main ReadOnly`),
  },
  {
    how: "the grant is lowered in the file",
    code: "role_insufficient",
    act: ({ gateway, name }) => {
      const entry = new RegExp(`(username = "${name}"\ndatabase = "main"\nrole = )"ReadWrite"`);
      return gateway.edit((text) => text.replace(entry, '$1"ReadOnly"'));
    },
  },
];

/** One way for each code. */
export const oneWayEach = ways.filter(
  ({ code }, at) => ways.findIndex((way) => way.code === code) === at,
);
