/** Test certificates (RFC 5280), made without openssl, which a machine may lack. */
import { generateKeyPairSync, randomBytes, sign } from "node:crypto";
import { isIPv4 } from "node:net";

export interface Certificate {
  readonly cert: string;
  readonly key: string;
}

const DAY_MS = 86_400_000;

const tags = {
  integer: 0x02,
  bits: 0x03,
  octets: 0x04,
  utf8: 0x0c,
  time: 0x17,
  sequence: 0x30,
  set: 0x31,
  version: 0xa0,
  extensions: 0xa3,
  dnsName: 0x82,
  address: 0x87,
} as const;

/** One value in DER (X.690, section 8.1). */
function der(tag: number, ...parts: readonly Uint8Array[]): Buffer {
  const body = Buffer.concat(parts);
  const { length } = body;
  const digits = length < 0x100 ? [length] : [length >> 8, length & 0xff];
  const head = length < 0x80 ? digits : [0x80 + digits.length, ...digits];
  return Buffer.concat([Buffer.from([tag, ...head]), body]);
}

const oids = {
  ecdsaWithSha256: Buffer.from("06082a8648ce3d040302", "hex"),
  commonName: Buffer.from("0603550403", "hex"),
  subjectAltName: Buffer.from("0603551d11", "hex"),
  basicConstraints: Buffer.from("0603551d13", "hex"),
};

const algorithm = der(tags.sequence, oids.ecdsaWithSha256);
const yes = Buffer.from([0x01, 0x01, 0xff]);

function time(date: Date): Buffer {
  const digits = date.toISOString().replace(/\D/g, "").slice(2, 14);
  return der(tags.time, Buffer.from(`${digits}Z`));
}

function extensions(names: readonly string[]): Buffer {
  const alternatives = names.map((name) =>
    isIPv4(name)
      ? der(tags.address, Buffer.from(name.split(".").map(Number)))
      : der(tags.dnsName, Buffer.from(name)),
  );
  const subject = der(tags.octets, der(tags.sequence, ...alternatives));
  const authority = der(tags.octets, der(tags.sequence, yes));
  const list = der(
    tags.sequence,
    der(tags.sequence, oids.basicConstraints, yes, authority),
    der(tags.sequence, oids.subjectAltName, subject),
  );
  return der(tags.extensions, list);
}

function pem(label: string, content: Buffer): string {
  const lines = content.toString("base64").replace(/.{64}(?=.)/g, "$&\n");
  return `-----BEGIN ${label}-----\n${lines}\n-----END ${label}-----\n`;
}

/** Makes a self-signed certificate, valid for a day, for these DNS names and IPv4 addresses. */
export function makeCertificate(...names: readonly [string, ...string[]]): Certificate {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const common = der(tags.sequence, oids.commonName, der(tags.utf8, Buffer.from(names[0])));
  const name = der(tags.sequence, der(tags.set, common));
  const now = Date.now();
  const content = der(
    tags.sequence,
    der(tags.version, der(tags.integer, Buffer.from([2]))),
    der(tags.integer, Buffer.from([1]), randomBytes(8)),
    algorithm,
    name,
    der(tags.sequence, time(new Date(now - DAY_MS)), time(new Date(now + DAY_MS))),
    name,
    publicKey.export({ type: "spki", format: "der" }),
    extensions(names),
  );
  const signature = der(tags.bits, Buffer.from([0]), sign("sha256", content, privateKey));
  return {
    cert: pem("CERTIFICATE", der(tags.sequence, content, algorithm, signature)),
    key: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
  };
}
