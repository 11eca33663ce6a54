import { createPrivateKey, type KeyObject, X509Certificate } from "node:crypto";
import type { ServerOptions } from "node:http";
import { createServer } from "node:https";
import { createSecureContext } from "node:tls";
import { errorMessage } from "../base/client-error.ts";
import { readFailure, readGuarded } from "../base/files/guarded.ts";
import { followFiles } from "../base/files/watch.ts";
import type { Log } from "../observe/log.ts";

interface CertificateFiles {
  readonly certificate: string;
  readonly key: string;
}

interface ServerCertificate {
  readonly cert: string;
  readonly key: string;
  readonly names: string;
  readonly expires: Date;
}

class CertificateError extends Error {
  constructor(key: keyof CertificateFiles, file: string, reason: string, cause?: unknown) {
    super(`server.tls.${key}: ${file}: ${reason}`, { cause });
    this.name = "CertificateError";
  }
}

function parseCertificate(file: string, pem: string): X509Certificate {
  try {
    return new X509Certificate(pem);
  } catch {
    throw new CertificateError("certificate", file, "is not a PEM certificate");
  }
}

function parseKey(file: string, pem: string): KeyObject {
  // A passphrase protects it (RFC 5958, or the older OpenSSL format).
  if (/^-----BEGIN ENCRYPTED|^Proc-Type: 4,ENCRYPTED/m.test(pem)) {
    throw new CertificateError("key", file, "is encrypted: store it without a passphrase");
  }
  try {
    return createPrivateKey(pem);
  } catch {
    throw new CertificateError("key", file, "is not a PEM private key");
  }
}

/**
 * @param checkRead refuse a key that other users may read
 * @throws CertificateError
 */
export async function readCertificate(
  files: CertificateFiles,
  checkRead: boolean,
): Promise<ServerCertificate> {
  const read = (which: keyof CertificateFiles, options: { checkRead: boolean }) =>
    readGuarded(files[which], options).catch((error: unknown) => {
      throw new CertificateError(which, files[which], readFailure(error), error);
    });
  const cert = await read("certificate", { checkRead: false });
  const key = await read("key", { checkRead });
  const parsed = parseCertificate(files.certificate, cert);
  if (!parsed.checkPrivateKey(parseKey(files.key, key))) {
    throw new CertificateError("key", files.key, `is not the key of ${files.certificate}`);
  }
  try {
    // OpenSSL checks the certificate chain and the key strength here.
    createSecureContext({ cert, key });
  } catch (error) {
    const reason = error instanceof Error ? error.message : "cannot be served";
    throw new CertificateError("certificate", files.certificate, reason);
  }
  return { cert, key, names: parsed.subjectAltName ?? parsed.subject, expires: parsed.validToDate };
}

/** The oldest allowed version (RFC 8996 forbids earlier ones). */
const MIN_VERSION = "TLSv1.2";

interface SecureServerOptions {
  readonly files: CertificateFiles;
  readonly checkRead: boolean;
  readonly log: Log;
  readonly onLoad?: (certificate: ServerCertificate) => void;
  /** Called when the files cannot be used and the last valid pair stays in force. */
  readonly onFailure?: () => void;
}

export type SecureServer = Awaited<ReturnType<typeof createSecureServer>>;

function describe({ certificate }: CertificateFiles, { names, expires }: ServerCertificate) {
  return { certificate, names, expires: expires.toISOString() };
}

/**
 * Creates an HTTPS server that reloads its certificate when the files change.
 *
 * @throws CertificateError if the pair cannot be served
 */
export async function createSecureServer(
  http: ServerOptions,
  { files, checkRead, log, onLoad, onFailure }: SecureServerOptions,
) {
  const first = await readCertificate(files, checkRead);
  const { headersTimeout: handshakeTimeout } = http;
  const tls = { minVersion: MIN_VERSION, ...(handshakeTimeout && { handshakeTimeout }) } as const;
  const server = createServer({ ...http, ...tls, cert: first.cert, key: first.key });
  let inForce = first;
  let failure: string | undefined;

  function announce(certificate: ServerCertificate): void {
    onLoad?.(certificate);
    if (certificate.expires.getTime() > Date.now()) return;
    log.warn(describe(files, certificate), "the TLS certificate has expired");
  }

  async function load(): Promise<void> {
    const found = await readCertificate(files, checkRead);
    if (found.cert !== inForce.cert || found.key !== inForce.key) {
      server.setSecureContext({ ...tls, cert: found.cert, key: found.key });
      inForce = found;
      log.info(describe(files, found), "TLS certificate reloaded");
    }
    failure = undefined;
    announce(found);
  }

  announce(first);
  const following = followFiles([files.certificate, files.key], load, (error) => {
    failure = errorMessage(error);
    log.error({ reason: failure }, "TLS certificate refused: the last good one stays in force");
    onFailure?.();
  });
  return {
    server,
    reload: following.reload,
    close: following.close,
    get certificate(): ServerCertificate {
      return inForce;
    },
    /** The reason why the current files are not in force, if so. */
    get failure(): string | undefined {
      return failure;
    },
  };
}
