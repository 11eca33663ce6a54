import { isLoopback, isUnspecified } from "../config/addresses.ts";
import type { Configuration } from "../config/schema.ts";

/** What a valid configuration lays open, or cannot do. */
export interface ExposureWarning {
  /** What it is about. */
  readonly about: { readonly host?: string };
  readonly sentence: string;
}

/** What a start warns of that is written in the configuration alone. */
export function exposureWarnings({ auth, server, mcp }: Configuration): ExposureWarning[] {
  const warnings: ExposureWarning[] = [];
  const about = { host: server.host };
  if (!isLoopback(server.host) && server.tls.certificate === undefined) {
    const sentence =
      "other machines can reach this address: switch TLS on ([server.tls]) or put it in front";
    warnings.push({ about, sentence });
  }
  if (mcp.enabled && server.public_url === "" && isUnspecified(server.host)) {
    const sentence =
      "this address cannot be opened: set server.public_url, or no MCP client can log in";
    warnings.push({ about, sentence });
  }
  if (!auth.enabled) {
    const sentence = "AUTHENTICATION IS OFF: every caller may do everything (auth.enabled = false)";
    warnings.push({ about: {}, sentence });
  }
  return warnings;
}
