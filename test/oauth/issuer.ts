import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import {
  CompactSign,
  type CryptoKey,
  exportJWK,
  generateKeyPair,
  type JWK,
  type JWTHeaderParameters,
  type JWTPayload,
  SignJWT,
} from "jose";
import { pino } from "pino";
import type { Test } from "tap";
import type { IssuerSettings } from "../../src/core/config/schema.ts";
import { Issuers } from "../../src/features/issuers/issuers.ts";

export interface IssuerKey {
  readonly kid: string;
  readonly alg: string;
  readonly privateKey: CryptoKey;
  readonly jwk: JWK;
}

export interface TokenChanges {
  readonly claims?: Readonly<Record<string, unknown>>;
  readonly header?: Partial<Omit<JWTHeaderParameters, "typ">> & { typ?: string | undefined };
  readonly key?: IssuerKey;
}

export const metadataPlaces = {
  "RFC 8414": "/.well-known/oauth-authorization-server/staff",
  "RFC 8414, as an OpenID provider": "/.well-known/openid-configuration/staff",
  "OpenID Connect Discovery": "/staff/.well-known/openid-configuration",
};

export async function makeKey(kid: string, alg = "ES256"): Promise<IssuerKey> {
  const { publicKey, privateKey } = await generateKeyPair(alg, { extractable: true });
  return { kid, alg, privateKey, jwk: { ...(await exportJWK(publicKey)), kid, alg, use: "sig" } };
}

export const mcpResource = "https://gate.example.com/mcp";

/** Settings as the configuration has them by default, of an issuer that opens `mcp`. */
export function issuerSettings(
  issuer: string,
  changes: Partial<IssuerSettings> = {},
): IssuerSettings {
  const claims = { groups_claim_optional: false, required_claims: {}, attribute_claims: {} };
  const others = { default_scopes: [], id_jag: false, opens: ["mcp"] as const, ...claims };
  return { issuer, prefix: "staff", username_claim: "sub", ...others, ...changes };
}

export function issuersWith(...settings: IssuerSettings[]): Issuers {
  return new Issuers(settings, () => mcpResource, pino({ level: "silent" }));
}

export class TestIssuer {
  keys: IssuerKey[];
  readonly others = new Map<string, unknown>();
  /** Answers that are not JSON, by path. */
  readonly raw = new Map<string, { status?: number; headers?: object; body?: string }>();
  /** Of the keys. */
  fetches = 0;
  requests = 0;
  failure: number | undefined;
  /** True if it accepts requests and does not answer them. */
  isSilent = false;
  place = metadataPlaces["RFC 8414"];
  readonly #server: Server;
  #port = 0;

  private constructor(keys: IssuerKey[]) {
    this.keys = keys;
    this.#server = createServer(({ url = "" }, response) => {
      this.requests++;
      const document = this.#documentAt(url);
      if (this.isSilent) return;
      const raw = this.raw.get(url);
      if (raw !== undefined) {
        response.writeHead(raw.status ?? 200, { ...raw.headers }).end(raw.body);
        return;
      }
      const found = document === undefined ? 404 : 200;
      response.writeHead(this.failure ?? found, { "content-type": "application/json" });
      response.end(JSON.stringify(document ?? {}));
    });
  }

  static async start(t: Test): Promise<TestIssuer> {
    const issuer = new TestIssuer([await makeKey("first")]);
    await issuer.listen();
    t.teardown(() => issuer.stop());
    return issuer;
  }

  get origin(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  get url(): string {
    return `${this.origin}/staff`;
  }

  /** A section of the configuration, by which its tokens open `/query`. */
  section(more = "", prefix = "staff"): string {
    const keys = `issuer = "${this.url}"\nprefix = "${prefix}"\nopens = ["query"]`;
    return `[[issuers]]\n${keys}\naudience = "gatehouse"\n${more}\n`;
  }

  async listen(): Promise<void> {
    this.#server.listen(this.#port, "127.0.0.1");
    await once(this.#server, "listening");
    const address: AddressInfo | string | null = this.#server.address();
    if (typeof address === "object" && address !== null) this.#port = address.port;
  }

  async stop(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = once(this.#server, "close");
    this.#server.close();
    this.#server.closeAllConnections();
    await closed;
  }

  async sign(resource: string, { claims, header, key }: TokenChanges = {}): Promise<string> {
    const { kid, alg, privateKey } = key ?? this.#signer();
    const now = Math.floor(Date.now() / 1000);
    const usual: JWTPayload = {
      iss: this.url,
      aud: resource,
      sub: "alice",
      scope: "mcp:tools mcp:resources",
      jti: `token-${now}`,
      iat: now,
      exp: now + 600,
    };
    const { typ, ...others } = { typ: "at+jwt", ...header };
    return new SignJWT({ ...usual, ...claims })
      .setProtectedHeader({ alg, kid, ...(typ === undefined ? {} : { typ }), ...others })
      .sign(privateKey);
  }

  /** @param claims as they are, also as no library writes them */
  async signText(claims: string): Promise<string> {
    const { kid, alg, privateKey } = this.#signer();
    const header = { alg, kid, typ: "at+jwt" };
    return new CompactSign(Buffer.from(claims)).setProtectedHeader(header).sign(privateKey);
  }

  #signer(): IssuerKey {
    const [first] = this.keys;
    if (first === undefined) throw new Error("the issuer has no key");
    return first;
  }

  #documentAt(path: string): unknown {
    if (path === "/keys") {
      this.fetches++;
      return this.others.get(path) ?? { keys: this.keys.map(({ jwk }) => jwk) };
    }
    const own = { issuer: this.url, jwks_uri: `${this.origin}/keys` };
    return this.others.get(path) ?? (path === this.place ? own : undefined);
  }
}
