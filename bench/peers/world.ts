import { createPublicKey, randomUUID } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { exportSPKI, generateKeyPair, importJWK, SignJWT } from "jose";
import { blankUser } from "../../src/core/access/snapshot.ts";
import { passwordFingerprint } from "../../src/core/identity/authenticate.ts";
import { hashPassword } from "../../src/core/identity/password.ts";

export type Algorithm = "ES256" | "RS256" | "HS256";
type Role = "ReadOnly" | "ReadWrite";

/** Users of the access file: one writer per token in rotation, and one reader. */
export const writers = Array.from({ length: 50 }, (_, index) => `user${index}`);
export const reader = "reader";
const DAY_SECONDS = 86_400;

interface Signer {
  readonly kid: string;
  readonly key: Parameters<SignJWT["sign"]>[0];
}

/** Users, keys and tokens that all systems share. */
export class World {
  readonly directory: string;
  /** The directory of signing keys, once a gateway has created it. */
  keys: string | undefined;
  readonly #credential: string;
  readonly #signers = new Map<Algorithm, Signer>();

  private constructor(directory: string, credential: string) {
    this.directory = directory;
    this.#credential = credential;
  }

  /** @param directory for the files of the peers */
  static async create(directory: string): Promise<World> {
    const costs = { memory: 1024, time: 1, parallelism: 1 };
    const hash = await hashPassword("benchmark password", costs);
    const credential = passwordFingerprint({ ...blankUser("user"), passwordHash: hash });
    const world = new World(directory, credential);
    world.#write("hash", hash);
    const roles = [...writers.map((name) => [name, "write"]), [reader, "read"]];
    world.#write("roles.map", roles.map(([name, role]) => `${name}:main ${role}\n`).join(""));
    const table = roles.map(([name, role]) => [`${name}:main`, role]);
    world.#write("roles.json", JSON.stringify(Object.fromEntries(table)));
    const rsa = await generateKeyPair("RS256", { extractable: true });
    world.#write("RS256.pem", await exportSPKI(rsa.publicKey));
    world.#signers.set("RS256", { kid: "rsa", key: rsa.privateKey });
    const secret = randomUUID();
    world.#write("HS256.secret", secret);
    world.#signers.set("HS256", { kid: "hmac", key: Buffer.from(secret) });
    return world;
  }

  #write(name: string, content: string): void {
    writeFileSync(path.join(this.directory, name), content);
  }

  read(name: string): string {
    return readFileSync(path.join(this.directory, name), "utf8");
  }

  /** Loads the gateway's key, so that the peers accept its tokens. */
  async adoptKey(home: string): Promise<void> {
    const keys = path.join(home, "keys");
    this.keys = keys;
    const [file = ""] = readdirSync(keys).filter((name) => name.endsWith(".json"));
    const { kid, jwk } = JSON.parse(readFileSync(path.join(keys, file), "utf8"));
    this.#signers.set("ES256", { kid, key: await importJWK(jwk, "ES256") });
    const { d: _, ...open } = jwk;
    const publicKey = createPublicKey({ key: open, format: "jwk" });
    this.#write("ES256.pem", String(publicKey.export({ type: "spki", format: "pem" })));
    this.#write(
      "ES256.jwks",
      JSON.stringify({ keys: [{ ...open, kid, alg: "ES256", use: "sig" }] }),
    );
  }

  /** A login token as the gateway issues it; `lifetime` in seconds. */
  async token(username: string, algorithm: Algorithm = "ES256", lifetime = DAY_SECONDS) {
    const signer = this.#signers.get(algorithm);
    if (signer === undefined) throw new Error(`no key for ${algorithm}`);
    const issuedAt = Math.floor(Date.now() / 1000);
    // vmauth requires `vm_access` in every token.
    const claims = { database: "*", cred: this.#credential, role: "ReadWrite", vm_access: {} };
    return new SignJWT(claims)
      .setProtectedHeader({ alg: algorithm, kid: signer.kid, typ: "JWT" })
      .setSubject(username)
      .setIssuer("gatehouse")
      .setAudience("gatehouse")
      .setJti(randomUUID())
      .setIssuedAt(issuedAt - 1)
      .setExpirationTime(issuedAt + lifetime)
      .sign(signer.key);
  }

  /** A token with the same claims, signed with an unknown key. */
  async forgedToken(): Promise<string> {
    const { privateKey } = await generateKeyPair("ES256");
    const own = this.#signers.get("ES256");
    if (own === undefined) throw new Error("no key for ES256");
    this.#signers.set("ES256", { kid: own.kid, key: privateKey });
    const token = await this.token(writers[0] ?? "");
    this.#signers.set("ES256", own);
    return token;
  }

  /** The access file with `userCount` writers and the reader. */
  accessFile(userCount = writers.length): string {
    const hash = this.read("hash");
    const entry = (name: string, role: Role) =>
      `[[users]]\nusername = "${name}"\npassword_hash = "${hash}"\n\n` +
      `[[acl]]\nusername = "${name}"\ndatabase = "main"\nrole = "${role}"\n\n`;
    const names = Array.from({ length: userCount }, (_, index) => `user${index}`);
    return names.map((name) => entry(name, "ReadWrite")).join("") + entry(reader, "ReadOnly");
  }
}
