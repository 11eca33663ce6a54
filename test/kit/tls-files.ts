import { renameSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { Certificate } from "./certificate.ts";

export const tlsSection = '[server.tls]\ncertificate = "fullchain.pem"\nkey = "key.pem"\n';

/** Replaces a file by a rename, as certificate renewals do. */
export function replaceFile(home: string, name: string, text: string): void {
  const beside = path.join(home, `${name}.new`);
  writeFileSync(beside, text, { mode: 0o600 });
  renameSync(beside, path.join(home, name));
}

export function writePair(home: string, { cert, key }: Certificate): void {
  replaceFile(home, "fullchain.pem", cert);
  replaceFile(home, "key.pem", key);
}
