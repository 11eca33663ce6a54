import { writeFileSync } from "node:fs";
import path from "node:path";
import { SignJWT } from "jose";
import { makeKey } from "../../test/oauth/issuer.ts";
import type { World } from "./world.ts";

const issuer = "https://login.example.com";
const audience = "gatehouse";

/** Groups of a token. */
export const groups: readonly string[] = Array.from(
  { length: 200 },
  (_, index) => `engineering-team-${index}`,
);
const users = Array.from({ length: 50 }, (_, index) => `person${index}`);

/** An issuer whose users have entries of their own. */
interface External {
  /** Of `gateway.toml`. */
  readonly config: string;
  /** Of the access file. */
  readonly entries: string;
  /** One token for each of fifty users. */
  tokens(groups: readonly string[]): Promise<readonly string[]>;
}

/** Entries of these groups, and of as many local groups with another member. */
export function groupEntries(): string {
  return groups
    .map(
      (name) =>
        `[[groups]]\nname = "${name}"\nmembers = ["staff:another"]\n\n` +
        `[[acl]]\ngroup = "${name}"\ndatabase = "main"\nrole = "ReadOnly"\n\n` +
        `[[acl]]\ngroup = "staff:${name}"\ndatabase = "main"\nrole = "ReadOnly"\n\n`,
    )
    .join("");
}

export async function openExternal({ directory }: World): Promise<External> {
  const { kid, alg, privateKey, jwk } = await makeKey("first");
  const file = path.join(directory, "issuer.json");
  writeFileSync(file, JSON.stringify({ keys: [jwk] }));
  const entry = (name: string) =>
    `[[acl]]\nusername = "staff:${name}"\ndatabase = "main"\nrole = "ReadWrite"\n\n`;
  const sign = (name: string, ofToken: readonly string[]) =>
    new SignJWT({ groups: ofToken })
      .setProtectedHeader({ alg, kid, typ: "at+jwt" })
      .setSubject(name)
      .setIssuer(issuer)
      .setAudience(audience)
      .setIssuedAt()
      .setExpirationTime("1d")
      .sign(privateKey);
  return {
    config: `[[issuers]]
issuer = "${issuer}"
prefix = "staff"
opens = ["query"]
audience = "${audience}"
groups_claim = "groups"
jwks_file = "${file}"
`,
    entries: users.map(entry).join(""),
    tokens: (ofToken) => Promise.all(users.map((name) => sign(name, ofToken))),
  };
}
