/**
 * The part of the Kubernetes API that the manifests use, written by hand from its reference. Unknown
 * fields are refused, which the API server would drop. The nightly test has the API's own types.
 */
import * as z from "zod";

const text = z.string().min(1);
const count = z.int().min(0);
const port = z.int().min(1).max(65535);
const portOrName = z.union([port, text]);
const labels = z.record(z.string(), z.string());
const quantity = z.string().regex(/^\d+(m|Mi|Gi|Ti)?$/);
const metadata = z.strictObject({
  name: z.string().regex(/^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/),
  namespace: text.optional(),
  labels: labels.optional(),
  annotations: labels.optional(),
});
const selector = z.strictObject({ matchLabels: labels });
const resources = z.strictObject({
  requests: z.record(z.string(), quantity).optional(),
  limits: z.record(z.string(), quantity).optional(),
});
const environment = z.union([
  z.strictObject({ name: text, value: z.string() }),
  z.strictObject({
    name: text,
    valueFrom: z.strictObject({ secretKeyRef: z.strictObject({ name: text, key: text }) }),
  }),
]);
const containerSecurity = z.strictObject({
  allowPrivilegeEscalation: z.boolean(),
  readOnlyRootFilesystem: z.boolean().optional(),
  capabilities: z.strictObject({ drop: z.array(text) }),
});
const timing = { periodSeconds: count, timeoutSeconds: count.optional() };
const probe = z.union([
  z.strictObject({
    ...timing,
    httpGet: z.strictObject({ path: z.string().startsWith("/"), port: portOrName }),
    failureThreshold: count.optional(),
  }),
  z.strictObject({ ...timing, exec: z.strictObject({ command: z.array(text) }) }),
]);
const container = z.strictObject({
  name: text,
  image: text,
  imagePullPolicy: z.enum(["Always", "IfNotPresent", "Never"]).optional(),
  command: z.array(text).optional(),
  args: z.array(text).optional(),
  env: z.array(environment).default([]),
  ports: z.array(z.strictObject({ name: text, containerPort: port })).default([]),
  startupProbe: probe.optional(),
  livenessProbe: probe.optional(),
  readinessProbe: probe.optional(),
  resources: resources.optional(),
  securityContext: containerSecurity,
  volumeMounts: z
    .array(
      z.strictObject({
        name: text,
        mountPath: z.string().startsWith("/"),
        subPath: text.optional(),
        readOnly: z.boolean().optional(),
      }),
    )
    .default([]),
});
const volume = z.strictObject({
  name: text,
  configMap: z.strictObject({ name: text }).optional(),
  secret: z
    .strictObject({
      secretName: text,
      defaultMode: z.int().max(0o777),
      items: z.array(z.strictObject({ key: text, path: text })).optional(),
    })
    .optional(),
  persistentVolumeClaim: z.strictObject({ claimName: text }).optional(),
  emptyDir: z.strictObject({}).optional(),
});
const pod = z.strictObject({
  metadata: z.strictObject({ labels, annotations: labels.optional() }),
  spec: z.strictObject({
    automountServiceAccountToken: z.literal(false),
    imagePullSecrets: z.array(z.strictObject({ name: text })).optional(),
    terminationGracePeriodSeconds: count.optional(),
    securityContext: z.strictObject({
      runAsNonRoot: z.literal(true),
      runAsUser: count,
      runAsGroup: count,
      fsGroup: count,
      seccompProfile: z.strictObject({ type: z.literal("RuntimeDefault") }),
    }),
    topologySpreadConstraints: z
      .array(
        z.strictObject({
          maxSkew: count,
          topologyKey: text,
          whenUnsatisfiable: z.enum(["ScheduleAnyway", "DoNotSchedule"]),
          labelSelector: selector,
        }),
      )
      .optional(),
    initContainers: z.array(container).default([]),
    containers: z.array(container).length(1),
    volumes: z.array(volume),
  }),
});
const claim = z.strictObject({
  accessModes: z.array(z.enum(["ReadWriteOnce"])),
  storageClassName: text.optional(),
  resources,
});
const peer = z
  .strictObject({
    podSelector: z.strictObject({ matchLabels: labels.optional() }).optional(),
    namespaceSelector: selector.optional(),
    ipBlock: z.strictObject({ cidr: z.union([z.cidrv4(), z.cidrv6()]) }).optional(),
  })
  .refine((one) => Object.keys(one).length > 0, "a peer without a selector");
const policyPorts = z.array(
  z.strictObject({ port: portOrName, protocol: z.enum(["TCP", "UDP"]).optional() }),
);
const host = z.string().regex(/^[a-z0-9-]+(\.[a-z0-9-]+)+$/);

const configMap = z.strictObject({
  apiVersion: z.literal("v1"),
  kind: z.literal("ConfigMap"),
  metadata,
  data: z.record(z.string(), z.string()),
});
const service = z.strictObject({
  apiVersion: z.literal("v1"),
  kind: z.literal("Service"),
  metadata,
  spec: z.strictObject({
    type: z.enum(["ClusterIP", "NodePort", "LoadBalancer"]).optional(),
    clusterIP: z.literal("None").optional(),
    selector: labels,
    ports: z.array(z.strictObject({ name: text, port, targetPort: portOrName })),
  }),
});
const volumeClaim = z.strictObject({
  apiVersion: z.literal("v1"),
  kind: z.literal("PersistentVolumeClaim"),
  metadata,
  spec: claim,
});
const deployment = z.strictObject({
  apiVersion: z.literal("apps/v1"),
  kind: z.literal("Deployment"),
  metadata,
  spec: z.strictObject({
    replicas: count,
    selector,
    strategy: z.strictObject({
      type: z.enum(["RollingUpdate", "Recreate"]),
      rollingUpdate: z.strictObject({ maxUnavailable: count, maxSurge: count }).optional(),
    }),
    template: pod,
  }),
});
const statefulSet = z.strictObject({
  apiVersion: z.literal("apps/v1"),
  kind: z.literal("StatefulSet"),
  metadata,
  spec: z.strictObject({
    serviceName: text,
    replicas: count,
    selector,
    template: pod,
    volumeClaimTemplates: z.array(z.strictObject({ metadata, spec: claim })),
  }),
});
const disruptionBudget = z.strictObject({
  apiVersion: z.literal("policy/v1"),
  kind: z.literal("PodDisruptionBudget"),
  metadata,
  spec: z.strictObject({ maxUnavailable: count, selector }),
});
const networkPolicy = z.strictObject({
  apiVersion: z.literal("networking.k8s.io/v1"),
  kind: z.literal("NetworkPolicy"),
  metadata,
  spec: z.strictObject({
    podSelector: selector,
    policyTypes: z.array(z.enum(["Ingress", "Egress"])),
    ingress: z.array(z.strictObject({ from: z.array(peer).min(1), ports: policyPorts })),
    egress: z
      .array(z.strictObject({ to: z.array(peer).min(1).optional(), ports: policyPorts }))
      .optional(),
  }),
});
const ingress = z.strictObject({
  apiVersion: z.literal("networking.k8s.io/v1"),
  kind: z.literal("Ingress"),
  metadata,
  spec: z.strictObject({
    ingressClassName: text,
    tls: z.array(z.strictObject({ hosts: z.array(host), secretName: text })),
    rules: z.array(
      z.strictObject({
        host,
        http: z.strictObject({
          paths: z.array(
            z.strictObject({
              path: z.string().startsWith("/"),
              pathType: z.enum(["Prefix", "Exact"]),
              backend: z.strictObject({
                service: z.strictObject({ name: text, port: z.strictObject({ name: text }) }),
              }),
            }),
          ),
        }),
      }),
    ),
  }),
});

export const manifest = z.discriminatedUnion("kind", [
  configMap,
  service,
  volumeClaim,
  deployment,
  statefulSet,
  disruptionBudget,
  networkPolicy,
  ingress,
]);
