{{/* Labels of every object. Objects of one component also have app.kubernetes.io/component. */}}
{{- define "aliquot.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
app.kubernetes.io/name: aliquot
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* Labels of the pods of a component. Call with (dict "component" NAME "root" $). */}}
{{- define "aliquot.podLabels" -}}
{{ include "aliquot.labels" .root }}
app.kubernetes.io/component: {{ .component }}
{{- with .root.Values.podLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Labels that select the pods of a component. Call with (dict "component" NAME "root" $). */}}
{{- define "aliquot.selector" -}}
app.kubernetes.io/name: aliquot
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* An image's repository, at the mirror that imageRegistry names. Call with (dict "image" VALUES "root" $). */}}
{{- define "aliquot.repository" -}}
{{- with .root.Values.imageRegistry }}{{ . }}/{{ end -}}
{{- ternary (regexReplaceAll "^([^/]*[.:][^/]*|localhost)/" .image.repository "") .image.repository (ne .root.Values.imageRegistry "") -}}
{{- end }}

{{/* An Aliquot image, by its tag, else by its digest, which a released chart has. Call with (dict "image" VALUES "root" $). */}}
{{- define "aliquot.image" -}}
{{ include "aliquot.repository" . }}{{ if and .image.digest (not .image.tag) }}@{{ .image.digest }}{{ else }}:{{ .image.tag | default .root.Chart.AppVersion }}{{ end }}
{{- end }}

{{/* kube-scheduler's image. Its default tag is the cluster's version without a provider's suffix. */}}
{{- define "aliquot.kubeSchedulerImage" -}}
{{- with .Values.kubeScheduler.image -}}
{{ include "aliquot.repository" (dict "image" . "root" $) }}:{{ .tag | default (regexFind "^v[0-9]+\\.[0-9]+\\.[0-9]+" $.Capabilities.KubeVersion.Version) }}
{{- end -}}
{{- end }}

{{/* An amount of memory in MiB as the API server writes it: 1Gi and not 1024Mi. */}}
{{- define "aliquot.mebibytes" -}}
{{ mod . 1024 | eq 0 | ternary (printf "%dGi" (div . 1024)) (printf "%dMi" (int64 .)) }}
{{- end }}

{{/*
Resources of a container: those given, with the ephemeral storage that each container has unless they say otherwise. Amounts are
strings, since the API server stores strings. Call with (dict "resources" RESOURCES "root" $).
*/}}
{{- define "aliquot.resources" -}}
{{- range $kind, $storage := dict "limits" .root.Values.ephemeralStorage.limit "requests" .root.Values.ephemeralStorage.request }}
{{- $amounts := merge (dict) (get $.resources $kind | default dict) (ternary (dict "ephemeral-storage" $storage) dict (ne $storage "")) }}
{{- if $amounts }}
{{ $kind }}:
{{- range $name, $amount := $amounts }}
  {{ $name }}: {{ toString $amount | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/*
The same for a container of the scheduler. Without a memory limit: `first` MiB for up to 100 nodes and `further` hundredths of
a MiB for each further one, of which `requested` percent are requested (docs/install.md, "Memory of the scheduler").
*/}}
{{- define "aliquot.sizedResources" -}}
{{- $limits := .resources.limits | default dict }}
{{- $requests := .resources.requests | default dict }}
{{- if not $limits.memory }}
{{- $memory := add .first (div (mul .further (sub (max 100 (int .root.Values.cluster.nodes)) 100)) 100) }}
{{- $requests = merge (dict) $requests (dict "memory" (div (mul $memory .requested) 100 | include "aliquot.mebibytes")) }}
{{- $limits = merge (dict) $limits (dict "memory" (include "aliquot.mebibytes" $memory)) }}
{{- end }}
{{- include "aliquot.resources" (dict "resources" (dict "requests" $requests "limits" $limits) "root" .root) }}
{{- end }}

{{/* Not empty where cluster.nodes decides about a container's memory. */}}
{{- define "aliquot.sizedByNodes" -}}
{{- if not (and (dig "limits" "memory" "" .Values.scheduler.resources) (dig "limits" "memory" "" .Values.kubeScheduler.resources)) }}yes{{ end -}}
{{- end }}

{{/* Peers of a NetworkPolicy: the API servers. Call with ranges of addresses. */}}
{{- define "aliquot.apiServers" -}}
{{- range . }}
- ipBlock: {cidr: {{ . | quote }}}
{{- end }}
{{- end }}

{{/*
The user of pods that need no certain one. OpenShift gives such a pod a UID and a group of its namespace's range, and its SCC
restricted-v2 refuses others.
*/}}
{{- define "aliquot.nonRoot" -}}
runAsNonRoot: true
{{- if ne .Values.platform "openshift" }}
runAsUser: 65532
runAsGroup: 65532
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* Of a pod: pull secrets, and where a component's values let it run. Call with (dict "values" VALUES "root" $). */}}
{{- define "aliquot.podPlacement" -}}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The Secrets that the scheduler keeps. */}}
{{- define "aliquot.schedulerSecrets" -}}
aliquot-webhook-tls, aliquot-webhook-ca
{{- end }}

{{/* The nodes that HAMi serves, as JSON (module api: HamiRegistration). Needs a cluster. */}}
{{- define "aliquot.hamiNodes" -}}
{{- $nodes := list }}
{{- range (lookup "v1" "Node" "" "").items }}
{{- $annotations := .metadata.annotations | default dict }}
{{- $gpus := get $annotations "hami.io/node-nvidia-register" | trim }}
{{- $handshakes := printf "%s,%s" (get $annotations "hami.io/node-handshake") (get $annotations "hami.io/node-handshake-nvidia") }}
{{- if not (or (has $gpus (list "" "[]")) (regexMatch "(^|,)Deleted" $handshakes)) }}
{{- $nodes = append $nodes .metadata.name }}
{{- end }}
{{- end }}
{{- toJson $nodes }}
{{- end }}

{{/* User names of the scheduler's and the node agents' service accounts. */}}
{{- define "aliquot.schedulerUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:aliquot-scheduler
{{- end }}
{{- define "aliquot.agentUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:aliquot-device-plugin
{{- end }}

{{/*
"true" if containers of pods that request no GPU get NVIDIA_VISIBLE_DEVICES=void. auto: where NVIDIA's runtime is the default
runtime of nodes, which an empty runtimeClass.name or a ClusterPolicy says; and an upgrade never takes the webhook away.
*/}}
{{- define "aliquot.hideImplicitGpus" -}}
{{- if kindIs "bool" .Values.hideImplicitGpus }}
{{- if .Values.hideImplicitGpus }}true{{ end }}
{{- else if not .Values.runtimeClass.name }}true
{{- else if include "aliquot.hasCluster" . }}
{{- $hide := false }}
{{- if .Release.IsUpgrade }}
{{- range (lookup "admissionregistration.k8s.io/v1" "MutatingWebhookConfiguration" "" "aliquot").webhooks }}
{{- if eq .name "void.aliquot.io" }}{{ $hide = true }}{{ end }}
{{- end }}
{{- end }}
{{- /* lookup fails for a kind that the cluster does not have. */}}
{{- if .Capabilities.APIVersions.Has "nvidia.com/v1/ClusterPolicy" }}
{{- range (lookup "nvidia.com/v1" "ClusterPolicy" "" "").items }}
{{- $toolkit := .spec.toolkit | default dict }}
{{- /* gpu-operator, controllers/object_controls.go, transformToolkitCtrForCDI: with CDI, NVIDIA's runtime is not the default,
       unless a variable of the toolkit says so. */}}
{{- $default := not (dig "cdi" "enabled" false .spec) }}
{{- range $toolkit.env }}
{{- if has .name (list "NVIDIA_RUNTIME_SET_AS_DEFAULT" "CONTAINERD_SET_AS_DEFAULT" "CRIO_SET_AS_DEFAULT") }}
{{- $default = eq (toString .value) "true" }}
{{- end }}
{{- end }}
{{- if and $default (dig "enabled" true $toolkit) }}{{ $hide = true }}{{ end }}
{{- end }}
{{- end }}
{{- if $hide }}true{{ end }}
{{- end }}
{{- end }}

{{/*
Of a policy's matchConstraints: what the API server would add. Server-side apply takes the map as one value (structType=atomic in
k8s.io/api), so a map without its defaults differs from the stored one and conflicts with the program that has written it first,
such as Helm 3. The same goes for the apiVersion of a fieldRef, the divisor of a resourceFieldRef and the notation of an amount.
*/}}
{{- define "aliquot.matchDefaults" -}}
matchPolicy: Equivalent
namespaceSelector: {}
{{- end }}

{{/*
CEL expressions. They use only features of Kubernetes 1.30 and earlier: a 1.31 API server rejects newer ones in new
objects, since its predecessor could not evaluate them.
*/}}

{{/* The GPU resources that a container may request (module api: Resources.SUPPORTED). */}}
{{- define "aliquot.cel.supported" -}}
'aliquot.io/vgpu', 'nvidia.com/gpumem', 'nvidia.com/gpumem-percentage', 'nvidia.com/gpucores'
{{- end }}

{{/* Resources that the webhook translates when a pod is created (module api: ForeignResources.NAMES). */}}
{{- define "aliquot.cel.foreign" -}}
'nvidia.com/gpu', 'nvidia.com/gpu.shared', 'nvidia.com/priority', {{ include "aliquot.cel.ack" . }}
{{- end }}
{{- define "aliquot.cel.ack" -}}
'aliyun.com/gpu', 'aliyun.com/gpu-mem', 'aliyun.com/gpu-core.percentage'
{{- end }}

{{/*
Whose a pod is. A request of one of the own resources makes it Aliquot's, and so does one of ACK's, which the webhook
translates, unless sharedNames is true. A request of one of the optional resources does so only where the pod or its
namespace says so, since another device plugin in the cluster may serve them.
*/}}
{{- define "aliquot.cel.own" -}}
{{ ternary "'aliquot.io/vgpu'" (include "aliquot.cel.supported" .) .Values.sharedNames }}
{{- end }}
{{- define "aliquot.cel.optional" -}}
'nvidia.com/gpu'{{ if .Values.sharedNames }}, 'nvidia.com/gpumem', 'nvidia.com/gpumem-percentage', 'nvidia.com/gpucores', {{ include "aliquot.cel.ack" . }}{{ end }}
{{- end }}

{{/* All containers and init containers of a pod. */}}
{{- define "aliquot.cel.containers" -}}
(object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : []))
{{- end }}

{{/*
True if container c requests a resource k for which the expression holds. The API server has made the amounts canonical:
every zero is "0".
*/}}
{{- define "aliquot.cel.requests" -}}
has(c.resources) && [has(c.resources.limits) ? c.resources.limits : {}, has(c.resources.requests) ? c.resources.requests : {}].exists(m, m.exists(k, string(m[k]) != '0' && ({{ . }})))
{{- end }}

{{/* True if a container of the pod requests one of these resources. Call with (dict "resources" LIST "root" $). */}}
{{- define "aliquot.cel.podRequests" -}}
{{ include "aliquot.cel.containers" .root }}.exists(c, {{ include "aliquot.cel.requests" (printf "k in [%s]" .resources) }})
{{- end }}

{{/*
True if a container of the pod requests whole MIG instances by Aliquot's name, or by NVIDIA's where the value claims has
mig.
*/}}
{{- define "aliquot.cel.podRequestsInstances" -}}
{{ include "aliquot.cel.containers" . }}.exists(c, {{ include "aliquot.cel.requests" (printf "k.startsWith('mig.aliquot.io/')%s" (ternary " || k.startsWith('nvidia.com/mig-')" "" (has "mig" .Values.claims))) }})
{{- end }}

{{- define "aliquot.cel.namesScheduler" -}}
has(object.spec.schedulerName) && object.spec.schedulerName == 'aliquot-scheduler'
{{- end }}

{{/* True if a new pod is Aliquot's, whatever its namespace says. */}}
{{- define "aliquot.cel.ours" -}}
{{- $own := include "aliquot.cel.own" . }}
{{- if not .Values.sharedNames }}{{ $own = printf "%s, %s" $own (include "aliquot.cel.ack" .) }}{{ end -}}
{{- if has "gpu.shared" .Values.claims }}{{ $own = printf "%s, 'nvidia.com/gpu.shared'" $own }}{{ end -}}
{{ include "aliquot.cel.podRequests" (dict "resources" $own "root" .) }} ||
{{ include "aliquot.cel.podRequestsInstances" . }} ||
({{ include "aliquot.cel.podRequests" (dict "resources" (include "aliquot.cel.optional" .) "root" .) }}
{{- if eq .Values.scope "opt-in" }} &&
(({{ include "aliquot.cel.namesScheduler" . }}) ||
(has(object.metadata.labels) && 'aliquot.io/gpu' in object.metadata.labels && object.metadata.labels['aliquot.io/gpu'] == 'on'))
{{- end }}) ||
({{ include "aliquot.cel.namesScheduler" . }} && {{ include "aliquot.cel.podRequests" (dict "resources" "'nvidia.com/gpu.shared'" "root" .) }})
{{- end }}

{{/*
True if an update changes what Aliquot's webhook wrote in a pod, whatever its namespace says by now. The API server
refuses most of these updates; of those that do not differ after the translation, nothing is left.
*/}}
{{- define "aliquot.cel.changesRequest" -}}
has(oldObject.spec.schedulerName) && oldObject.spec.schedulerName == 'aliquot-scheduler' &&
{{ include "aliquot.cel.containers" . | replace "object" "oldObject" }}.exists(c, {{ include "aliquot.cel.requestsGpu" . }}) &&
(object.spec.containers != oldObject.spec.containers ||
(has(object.spec.schedulerName) && object.spec.schedulerName != 'aliquot-scheduler') ||
{{- range $i, $field := list "initContainers" "tolerations" }}
{{ if $i }}||{{ end }} (has(object.spec.{{ $field }}) ? object.spec.{{ $field }} : []) != (has(oldObject.spec.{{ $field }}) ? oldObject.spec.{{ $field }} : [])
{{- end }})
{{- end }}

{{/* True if a container of the pod requests a GPU or a part of one from any device plugin. */}}
{{- define "aliquot.cel.requestsSomeGpu" -}}
{{ include "aliquot.cel.containers" . }}.exists(c, {{ include "aliquot.cel.requests" "k == 'aliquot.io/vgpu' || ['nvidia.com/gpu', 'nvidia.com/mig-', 'mig.aliquot.io/', 'aliyun.com/gpu'].exists(prefix, k.startsWith(prefix))" }})
{{- end }}

{{/* True if container c still requests a resource that the webhook translates. */}}
{{- define "aliquot.cel.requestsForeign" -}}
{{ include "aliquot.cel.requests" (printf "k in [%s]" (include "aliquot.cel.foreign" .)) }}
{{- end }}

{{/* True if container c requests vGPUs, or memory or cores of one. */}}
{{- define "aliquot.cel.requestsGpu" -}}
has(c.resources) && has(c.resources.limits) && c.resources.limits.exists(k, k in [{{ include "aliquot.cel.supported" . }}] && string(c.resources.limits[k]) != '0')
{{- end }}

{{/* True if the pod was admitted by Aliquot. */}}
{{- define "aliquot.cel.gpuPod" -}}
{{ include "aliquot.cel.namesScheduler" . }} && {{ include "aliquot.cel.containers" . }}.exists(c, {{ include "aliquot.cel.requestsGpu" . }})
{{- end }}

{{/* True if container c sees no GPU: it sets NVIDIA_VISIBLE_DEVICES once, to void. */}}
{{- define "aliquot.cel.seesNoGpu" -}}
has(c.env) && c.env.exists_one(e, e.name == 'NVIDIA_VISIBLE_DEVICES') && c.env.exists(e, e.name == 'NVIDIA_VISIBLE_DEVICES' && has(e.value) && e.value == 'void')
{{- end }}

{{/* True if the request comes from the agent of the node that it changes: the node that its token is bound to. */}}
{{- define "aliquot.cel.ownAgent" -}}
request.userInfo.username == '{{ include "aliquot.agentUser" . }}' && has(request.userInfo.extra) &&
'authentication.kubernetes.io/node-name' in request.userInfo.extra &&
request.userInfo.extra['authentication.kubernetes.io/node-name'] == [object.metadata.name]
{{- end }}

{{/*
True if a request changes only the status of a node, these annotations, and these labels between absent and a value. Needs the
variables new and old. Call with (dict "annotations" (list KEY) "labels" (dict KEY VALUE)); with "gpuLabels" true also the
labels of variable gpuLabels that are new or in variable written.
*/}}
{{- define "aliquot.cel.onlyMetadata" -}}
object.spec == oldObject.spec &&
{{- if .labels }}
[has(object.metadata.labels) ? object.metadata.labels : {}].all(new, [has(oldObject.metadata.labels) ? oldObject.metadata.labels : {}].all(old,
new.all(k, (k in old && old[k] == new[k]){{ range $key, $value := .labels }} || (k == '{{ $key }}' && new[k] == '{{ $value }}'){{ end }}
{{- if .gpuLabels }} || (k in variables.gpuLabels && (!(k in old) || k in variables.written)){{ end }}) &&
old.all(k, k in new{{ range $key, $value := .labels }} || k == '{{ $key }}'{{ end }}
{{- if .gpuLabels }} || (k in variables.gpuLabels && k in variables.written){{ end }}))) &&
{{- else }}
(has(object.metadata.labels) ? object.metadata.labels : {}) == (has(oldObject.metadata.labels) ? oldObject.metadata.labels : {}) &&
{{- end }}
(has(object.metadata.finalizers) ? object.metadata.finalizers : []) == (has(oldObject.metadata.finalizers) ? oldObject.metadata.finalizers : []) &&
(has(object.metadata.ownerReferences) ? object.metadata.ownerReferences : []) == (has(oldObject.metadata.ownerReferences) ? oldObject.metadata.ownerReferences : []) &&
variables.new.all(k, k in ['{{ join "', '" .annotations }}'] || (k in variables.old && variables.old[k] == variables.new[k])) &&
variables.old.all(k, k in ['{{ join "', '" .annotations }}'] || k in variables.new)
{{- end }}

{{/* Policy variables: the annotations after and before the request. */}}
{{- define "aliquot.cel.annotations" -}}
- name: new
  expression: "has(object.metadata.annotations) ? object.metadata.annotations : {}"
- name: old
  expression: "oldObject != null && has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {}"
{{- end }}

{{/* Policy variables: the rules of the pod's namespace (module api: CoreRules), which an annotation sets or else the chart. */}}
{{- define "aliquot.cel.rules" -}}
- name: ofNamespace
  expression: "has(namespaceObject.metadata.annotations) ? namespaceObject.metadata.annotations : {}"
{{- range $name, $rule := dict "corePolicies" (list "aliquot.io/allowed-core-policies" .Values.allowed.corePolicies) "priorities" (list "aliquot.io/allowed-priorities" .Values.allowed.priorities) }}
- name: {{ $name }}
  expression: >-
    '{{ first $rule }}' in variables.ofNamespace && variables.ofNamespace['{{ first $rule }}'].trim() != ''
    ? variables.ofNamespace['{{ first $rule }}'].split(',').map(one, one.trim()) : ['{{ join "', '" (last $rule) }}']
{{- end }}
- name: requireCores
  expression: >-
    'aliquot.io/require-cores' in variables.ofNamespace && variables.ofNamespace['aliquot.io/require-cores'].trim() != ''
    ? variables.ofNamespace['aliquot.io/require-cores'] == 'true' : {{ .Values.allowed.requireCores }}
{{- end }}

{{/* True if container c shares GPUs, and its part is no whole card or instance of MIG. */}}
{{- define "aliquot.cel.shares" -}}
c.resources.limits.exists(k, k in ['nvidia.com/gpumem', 'nvidia.com/gpumem-percentage', 'nvidia.com/gpucores'] && string(c.resources.limits[k]) != '0')
{{- end }}

{{/*
The namespaces whose pods a webhook is called for; with a label only those where it is on, and with "admitted" true also
those that leave new pods alone. Call with (dict "label" KEY "root" $).
*/}}
{{- define "aliquot.namespaceSelector" -}}
{{- with .root.Values.webhooks.namespaceSelector.matchLabels }}
matchLabels: {{- toYaml . | nindent 2 }}
{{- end }}
matchExpressions:
- {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, {{ .root.Release.Namespace }}]}
{{- if not .admitted }}
- {key: aliquot.io/webhook, operator: NotIn, values: [ignore]}
{{- end }}
{{- with .label }}
- {key: {{ . }}, operator: In, values: ["on"]}
{{- end }}
{{- with .root.Values.webhooks.namespaceSelector.matchExpressions }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/*
A simulated GPU as the installer of the simulated driver reads it:
model;memory MiB;multiprocessors;context MiB;NUMA node;links;reserved MiB;MIG profiles
*/}}
{{- define "aliquot.fakeGpu" -}}
{{- $links := list }}
{{- range $gpu, $link := .links }}{{ $links = append $links (printf "%s=%s" $gpu $link) }}{{ end }}
{{- $parts := list .model (int .memoryMiB) (int .multiprocessors) }}
{{- $placed := or (hasKey . "numa") (not (empty $links)) (not (empty .mig)) }}
{{- if or .contextMiB $placed }}{{ $parts = append $parts (int .contextMiB) }}{{ end }}
{{- if $placed }}{{ $parts = append $parts (ternary (toString (int .numa)) "" (hasKey . "numa")) }}{{ end }}
{{- if or $links .mig }}{{ $parts = append $parts (join "," $links) }}{{ end }}
{{- if .mig }}{{ $parts = concat $parts (list "" (join "," .mig)) }}{{ end }}
{{- join ";" $parts }}
{{- end }}

{{/* The simulated GPUs of each named node, and of all other nodes. */}}
{{- define "aliquot.fakeGpus" -}}
{{- range $node, $gpus := .Values.fakeDriver.nodes }}
{{ eq $node "*" | ternary "default" (printf "node.%s" $node) }}: |
  {{- range $gpus }}
  {{ include "aliquot.fakeGpu" . }}
  {{- end }}
{{- end }}
{{- end }}

{{/*
Not empty if Helm talks to a cluster, so that lookups work: Helm's default API versions contain no kinds, a cluster's do.
*/}}
{{- define "aliquot.hasCluster" -}}
{{- if .Capabilities.APIVersions.Has "node.k8s.io/v1/RuntimeClass" }}yes{{ end -}}
{{- end }}

{{/* The RuntimeClass of a name as JSON; {} for none and without a cluster. Call with (dict "name" NAME "root" $). */}}
{{- define "aliquot.runtimeClass" -}}
{{- if include "aliquot.hasCluster" .root -}}
{{- lookup "node.k8s.io/v1" "RuntimeClass" "" .name | toJson -}}
{{- else -}}
{}
{{- end -}}
{{- end }}

{{/* True if a runtime or a plugin of one may read annotation k of a pod as names of devices. */}}
{{- define "aliquot.cel.namesDevices" -}}
(k.split('/')[0] in [{{ include "aliquot.cel.deviceKeys" . }}] || k.endsWith('.gpus.devices'))
{{- end }}
{{- define "aliquot.cel.deviceKeys" -}}
'nvidia.cdi.k8s.io', 'cdi.k8s.io', 'cdi-devices.noderesource.dev', 'cdi-devices.nri.io', 'cdi.nri.io'
{{- end }}

{{/* The same, or as paths of devices or mounts. */}}
{{- define "aliquot.cel.namesDevicesOrPaths" -}}
(k.split('/')[0] in [{{ include "aliquot.cel.deviceKeys" . }}, 'devices.noderesource.dev', 'devices.nri.io', 'devices.gke.io', 'mounts.noderesource.dev', 'mounts.nri.io', 'io.kubernetes.cri-o.Devices', 'devices.crio.io'] || k.endsWith('.gpus.devices'))
{{- end }}

{{/* The minor versions of Kubernetes that the tests of the cluster have run on (docs/support-matrix.md). No newer one is refused. */}}
{{- define "aliquot.testedKubernetes" -}}
1.31 1.35 1.37
{{- end }}
