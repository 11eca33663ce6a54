/** The manifests of `deploy/kubernetes.yaml`, as far as tests look at them. */
import { parseAllDocuments } from "yaml";
import * as z from "zod";
import { deployed } from "./programs.ts";

const named = z.object({ name: z.string() });
const labels = z.record(z.string(), z.string());
const port = z.union([z.string(), z.number()]);
const probe = z.object({ httpGet: z.object({ path: z.string(), port: z.string() }) });
const selector = z.object({ matchLabels: labels });

const configMap = z.object({
  kind: z.literal("ConfigMap"),
  metadata: named,
  data: z.record(z.string(), z.string()),
});
const volumeMounts = z.array(
  z.object({ name: z.string(), mountPath: z.string(), subPath: z.string().optional() }),
);
const ports = z.array(z.object({ name: z.string(), containerPort: z.number() }));
const securityContext = z.object({
  readOnlyRootFilesystem: z.literal(true),
  allowPrivilegeEscalation: z.literal(false),
  capabilities: z.object({ drop: z.tuple([z.literal("ALL")]) }),
});
const env = z.array(z.object({ name: z.string(), value: z.string() }));
const ofGatehouse = { image: z.string(), env, securityContext, volumeMounts };
const volume = z.object({
  name: z.string(),
  configMap: named.optional(),
  secret: z.object({ secretName: z.string() }).optional(),
  emptyDir: z.object({}).optional(),
});
const deployment = z.object({
  kind: z.literal("Deployment"),
  metadata: named,
  spec: z.object({
    replicas: z.number(),
    selector,
    strategy: z.object({ rollingUpdate: z.object({ maxUnavailable: z.literal(0) }) }),
    template: z.object({
      metadata: z.object({ labels }),
      spec: z.object({
        terminationGracePeriodSeconds: z.number(),
        securityContext: z.object({ runAsNonRoot: z.literal(true), runAsUser: z.number() }),
        initContainers: z.tuple([
          z.object({ ...ofGatehouse, command: z.array(z.string()) }),
          z.object({ ...ofGatehouse, args: z.array(z.string()) }),
        ]),
        containers: z.tuple([
          z.object({
            ...{ ...ofGatehouse, ports, args: z.array(z.string()) },
            ...{ startupProbe: probe, livenessProbe: probe, readinessProbe: probe },
          }),
        ]),
        volumes: z.array(volume),
      }),
    }),
  }),
});
const statefulSet = z.object({
  kind: z.literal("StatefulSet"),
  metadata: named,
  spec: z.object({
    serviceName: z.string(),
    selector,
    template: z.object({
      metadata: z.object({ labels }),
      spec: z.object({
        containers: z.tuple([z.object({ ports, volumeMounts, env })]),
        volumes: z.array(volume),
      }),
    }),
  }),
});
const service = z.object({
  kind: z.literal("Service"),
  metadata: named,
  spec: z.object({
    selector: labels,
    ports: z.array(z.object({ name: z.string(), targetPort: z.string() })),
  }),
});
const budget = z.object({
  kind: z.literal("PodDisruptionBudget"),
  metadata: named,
  spec: z.object({ maxUnavailable: z.number(), selector }),
});
const traffic = z.array(z.object({ ports: z.array(z.object({ port })) }));
const policy = z.object({
  kind: z.literal("NetworkPolicy"),
  metadata: named,
  spec: z.object({ podSelector: selector, ingress: traffic, egress: traffic.optional() }),
});
const backend = z.object({ service: z.object({ name: z.string(), port: named }) });
const ingress = z.object({
  kind: z.literal("Ingress"),
  metadata: named,
  spec: z.object({
    rules: z.tuple([z.object({ http: z.object({ paths: z.tuple([z.object({ backend })]) }) })]),
  }),
});
const manifest = z.discriminatedUnion("kind", [
  configMap,
  deployment,
  statefulSet,
  service,
  budget,
  policy,
  ingress,
]);
type Manifest = z.infer<typeof manifest>;

/** All of them. */
export const manifests: readonly Manifest[] = parseAllDocuments(deployed("kubernetes.yaml")).map(
  (document) => manifest.parse(document.toJS()),
);

/** The one manifest of its kind and name. */
export function only<Kind extends Manifest["kind"]>(
  kind: Kind,
  name = "gatehouse",
): Extract<Manifest, { kind: Kind }> {
  const isIt = (each: Manifest): each is Extract<Manifest, { kind: Kind }> =>
    each.kind === kind && each.metadata.name === name;
  const found = manifests.find(isIt);
  if (found === undefined) throw new Error(`no ${kind} ${name}`);
  return found;
}
