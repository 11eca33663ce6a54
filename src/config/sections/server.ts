import { z } from "zod";
import { isAddressOrNetwork, isHost, isOrigin } from "../addresses.ts";
import { filePath, publicUrl, refuse, seconds, text, wholeNumber } from "../kinds.ts";

const GIBIBYTE = 1_073_741_824;

const host = text("a host name or an IP address", isHost);
const proxy = text("an IP address or a network such as 10.0.0.0/8", isAddressOrNetwork);
const origin = text(
  "an exact origin such as https://app.example.com, in lower case, without path and *",
  isOrigin,
);

/** `[server.tls]`: the certificate of a gateway that speaks TLS itself. */
const tls = z
  .strictObject({
    certificate: filePath()
      .optional()
      .meta({
        description:
          "The server's certificate and those that signed it, in PEM; with key, TLS is spoken on server.port.",
        examples: ["fullchain.pem"],
      }),
    key: filePath()
      .optional()
      .meta({
        description: "The private key of that certificate, in PEM, without a passphrase.",
        examples: ["key.pem"],
      }),
  })
  .superRefine(({ certificate, key }, context) => {
    if ((certificate === undefined) === (key === undefined)) return;
    const missing = key === undefined ? "key" : "certificate";
    refuse(context, [missing], "a path, since certificate and key go together");
  })
  .prefault({})
  .describe("TLS on server.port (1.2 and up). Both files are read again when they change.");

/** `[server]`: where the gateway listens, its limits, and whom it believes. */
export const server = z
  .strictObject({
    host: host
      .default("127.0.0.1")
      .describe(
        "Address to listen on; one that is not loopback needs TLS: [server.tls], or a reverse proxy.",
      ),
    port: wholeNumber(0, 65_535).default(8080).describe("Port to listen on; 0 takes any free one."),
    workers: wholeNumber(0, 64).default(1).describe("Processes that serve; 0: one for each core."),
    public_url: publicUrl()
      .default("")
      .meta({
        description:
          "How clients reach the gateway; empty: http://host:port, with [server.tls] https://host:port.",
        examples: ["https://gate.example.com"],
      }),
    max_body_bytes: wholeNumber(1, GIBIBYTE).default(10_485_760).meta({
      description: "Largest request body, in bytes; a larger one is answered with 413.",
      live: true,
    }),
    max_buffered_bytes: wholeNumber(1, 1024 * GIBIBYTE)
      .default(268_435_456)
      .meta({
        description:
          "Bytes of request bodies and MCP results held at one time, at least max_body_bytes for " +
          "each worker; past it 503. At most a sixteenth of the memory that the cgroup allows.",
        live: true,
      }),
    request_timeout: seconds()
      .default(30)
      .meta({ description: "Seconds in which a request must have arrived whole.", live: true }),
    shutdown_delay: wholeNumber(0, 3600)
      .default(0)
      .meta({
        description:
          "Seconds after SIGTERM in which all is served as before while /readyz is 503, so that a " +
          "load balancer sends nothing more.",
      }),
    shutdown_grace: seconds().default(10).meta({
      description: "Seconds that requests in flight are given to finish on SIGTERM.",
      live: true,
    }),
    trusted_proxies: z
      .array(proxy)
      .default([])
      .meta({
        description: "Proxies whose X-Forwarded-* and X-Request-Id headers are believed.",
        live: true,
        examples: [["10.0.0.0/8"]],
      }),
    allowed_origins: z
      .array(origin)
      .default([])
      .meta({
        description: "Browser origins that may call the gateway (CORS).",
        live: true,
        examples: [["https://app.example.com"]],
      }),
    tls,
  })
  .superRefine((server, context) => {
    const { workers, max_body_bytes: body, max_buffered_bytes: buffered } = server;
    const least = Math.max(1, workers) * body;
    if (buffered >= least) return;
    const rule = workers > 1 ? `max_body_bytes for each of ${workers} workers` : "max_body_bytes";
    refuse(context, ["max_buffered_bytes"], `at least ${rule}, which is ${least}`);
  })
  .prefault({})
  .describe("Where the gateway listens, its limits, and whom it believes.");
