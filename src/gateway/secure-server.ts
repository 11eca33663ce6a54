import type { ServerOptions } from "node:http";
import { createServer, type Server } from "node:https";
import { watchFile } from "../files/watch.ts";
import type { Log } from "../observe/log.ts";
import { type CertificateFiles, readCertificate, type ServerCertificate } from "./certificate.ts";

/** The oldest TLS that is spoken (RFC 8996 forbids the ones before). */
const MIN_VERSION = "TLSv1.2";

export interface SecureServerOptions {
  readonly files: CertificateFiles;
  /** Whether a key that others may read is refused. */
  readonly checkRead: boolean;
  readonly log: Log;
  /** Told of each certificate that is put in force. */
  readonly onLoad?: (certificate: ServerCertificate) => void;
  /** Told when the files could not be used and the last good pair stays in force. */
  readonly onFailure?: () => void;
}

/** An HTTP server behind TLS, whose certificate is read again whenever its files change. */
export interface SecureServer {
  readonly server: Server;
  /** What is served. */
  readonly certificate: ServerCertificate;
  /** Why what the files hold by now is not. */
  readonly failure: string | undefined;
  /** Reads the files again. */
  reload(): Promise<void>;
  /** Stops watching the files. */
  close(): Promise<void>;
}

function describe({ certificate }: CertificateFiles, { names, expires }: ServerCertificate) {
  return { certificate, names, expires: expires.toISOString() };
}

/** @throws CertificateError if the pair cannot be served */
export async function createSecureServer(
  http: ServerOptions,
  { files, checkRead, log, onLoad, onFailure }: SecureServerOptions,
): Promise<SecureServer> {
  const first = await readCertificate(files, { checkRead });
  const { headersTimeout: handshakeTimeout } = http;
  const tls = { minVersion: MIN_VERSION, ...(handshakeTimeout && { handshakeTimeout }) } as const;
  const server = createServer({ ...http, ...tls, cert: first.cert, key: first.key });
  let inForce = first;
  let failure: string | undefined;

  function tell(certificate: ServerCertificate): void {
    onLoad?.(certificate);
    if (certificate.expires.getTime() > Date.now()) return;
    log.warn(describe(files, certificate), "the TLS certificate has expired");
  }

  async function reload(): Promise<void> {
    try {
      const found = await readCertificate(files, { checkRead });
      if (found.cert !== inForce.cert || found.key !== inForce.key) {
        server.setSecureContext({ ...tls, cert: found.cert, key: found.key });
        inForce = found;
        log.info(describe(files, found), "TLS certificate reloaded");
      }
      failure = undefined;
      tell(found);
    } catch (error) {
      failure = error instanceof Error ? error.message : "unknown";
      log.error({ reason: failure }, "TLS certificate refused: the last good one stays in force");
      onFailure?.();
    }
  }

  tell(first);
  // One after the other, so that what is in force is what was read last.
  let turn = Promise.resolve();
  const reloadInTurn = (): Promise<void> => {
    turn = turn.then(reload);
    return turn;
  };
  const watches = [files.certificate, files.key].map((file) =>
    watchFile(file, () => void reloadInTurn()),
  );
  return {
    server,
    get certificate() {
      return inForce;
    },
    get failure() {
      return failure;
    },
    reload: reloadInTurn,
    async close() {
      await Promise.all(watches.map((watch) => watch.close()));
    },
  };
}
