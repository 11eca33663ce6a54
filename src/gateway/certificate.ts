import { createPrivateKey, type KeyObject, X509Certificate } from "node:crypto";
import { createSecureContext } from "node:tls";
import { readGuarded, UnsafeFileError } from "../files/guarded.ts";

/** Where a certificate and its key are: PEM files. */
export interface CertificateFiles {
  readonly certificate: string;
  readonly key: string;
}

/** A certificate that can be served. */
export interface ServerCertificate {
  /** PEM, with those that signed it. */
  readonly cert: string;
  /** PEM. */
  readonly key: string;
  /** The names that it is for, as the certificate lists them. */
  readonly names: string;
  /** The moment at which it expires. */
  readonly expires: Date;
}

/** The pair cannot be served; the message names key and file and says why, never what is in it. */
export class CertificateError extends Error {
  constructor(key: keyof CertificateFiles, file: string, reason: string) {
    super(`server.tls.${key}: ${file}: ${reason}`);
    this.name = "CertificateError";
  }
}

const readFailures = new Map([
  ["ENOENT", "does not exist"],
  ["ENOTDIR", "does not exist"],
  ["EACCES", "may not be read by this user"],
]);

/** Why a file was not read, without its name. */
function readFailure(error: unknown): string {
  if (error instanceof UnsafeFileError) return error.reason;
  const code = error instanceof Error && "code" in error ? String(error.code) : "unknown error";
  return readFailures.get(code) ?? `cannot be read (${code})`;
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : "cannot be served";
}

/** True for a key that only a passphrase opens (RFC 5958, and the older form of OpenSSL). */
function isEncrypted(pem: string): boolean {
  return /^-----BEGIN ENCRYPTED|^Proc-Type: 4,ENCRYPTED/m.test(pem);
}

function parseCertificate(file: string, pem: string): X509Certificate {
  try {
    return new X509Certificate(pem);
  } catch {
    throw new CertificateError("certificate", file, "is no certificate in PEM");
  }
}

function parseKey(file: string, pem: string): KeyObject {
  if (isEncrypted(pem)) {
    throw new CertificateError("key", file, "is encrypted: write it without a passphrase");
  }
  try {
    return createPrivateKey(pem);
  } catch {
    throw new CertificateError("key", file, "is no private key in PEM");
  }
}

/**
 * Reads a certificate and its key.
 *
 * @param options.checkRead also refuse a key that others may read
 * @throws CertificateError
 */
export async function readCertificate(
  files: CertificateFiles,
  options: { checkRead: boolean },
): Promise<ServerCertificate> {
  const read = (which: keyof CertificateFiles, checkRead: boolean) =>
    readGuarded(files[which], { checkRead }).catch((error: unknown) => {
      throw new CertificateError(which, files[which], readFailure(error));
    });
  const cert = await read("certificate", false);
  const key = await read("key", options.checkRead);
  const parsed = parseCertificate(files.certificate, cert);
  if (!parsed.checkPrivateKey(parseKey(files.key, key))) {
    throw new CertificateError("key", files.key, `is not the key of ${files.certificate}`);
  }
  try {
    // What follows the certificate is judged here, and whether it is strong enough to be served.
    createSecureContext({ cert, key });
  } catch (error) {
    throw new CertificateError("certificate", files.certificate, reasonOf(error));
  }
  const names = parsed.subjectAltName ?? parsed.subject;
  return { cert, key, names, expires: parsed.validToDate };
}
