{{/* Labels of every object. Objects of one component also have app.kubernetes.io/component. */}}
{{- define "aliquot.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
app.kubernetes.io/name: aliquot
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* Labels that select the pods of a component. Call with (dict "component" NAME "root" $). */}}
{{- define "aliquot.selector" -}}
app.kubernetes.io/name: aliquot
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* An Aliquot image. Call with (dict "image" VALUES "root" $). */}}
{{- define "aliquot.image" -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{/* kube-scheduler's image. Its default tag is the cluster's version without a provider's suffix. */}}
{{- define "aliquot.kubeSchedulerImage" -}}
{{- with .Values.kubeScheduler.image -}}
{{ .repository }}:{{ .tag | default (regexFind "^v[0-9]+\\.[0-9]+\\.[0-9]+" $.Capabilities.KubeVersion.Version) }}
{{- end -}}
{{- end }}

{{- define "aliquot.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/* User names of Aliquot's two service accounts. */}}
{{- define "aliquot.schedulerUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:aliquot-scheduler
{{- end }}
{{- define "aliquot.agentUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:aliquot-device-plugin
{{- end }}

{{/*
CEL expressions. They use only features of Kubernetes 1.29 and earlier: a 1.30 API server rejects newer ones in stored
objects, since its predecessor could not evaluate them.
*/}}

{{/* The GPU resources that a container may request (module api: Resources.SUPPORTED). */}}
{{- define "aliquot.cel.supported" -}}
'nvidia.com/gpu', 'nvidia.com/gpumem', 'nvidia.com/gpumem-percentage', 'nvidia.com/gpucores'
{{- end }}

{{/* Resources that the webhook translates when a pod is created (module api: ForeignResources.NAMES). */}}
{{- define "aliquot.cel.foreign" -}}
'nvidia.com/priority', 'aliyun.com/gpu', 'aliyun.com/gpu-mem', 'aliyun.com/gpu-core.percentage'
{{- end }}

{{/* All containers and init containers of a pod. */}}
{{- define "aliquot.cel.containers" -}}
(object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : []))
{{- end }}

{{/* True if a container names a GPU resource, in any amount, or one that the webhook translates. */}}
{{- define "aliquot.cel.names" -}}
{{ include "aliquot.cel.containers" . }}.exists(c, has(c.resources) &&
[has(c.resources.limits) ? c.resources.limits : {}, has(c.resources.requests) ? c.resources.requests : {}].exists(m, m.exists(k,
k in [{{ include "aliquot.cel.supported" . }}, {{ include "aliquot.cel.foreign" . }}])))
{{- end }}

{{/* True if container c still names a resource that the webhook translates. */}}
{{- define "aliquot.cel.namesForeign" -}}
has(c.resources) && [has(c.resources.limits) ? c.resources.limits : {}, has(c.resources.requests) ? c.resources.requests : {}].exists(m, m.exists(k, k in [{{ include "aliquot.cel.foreign" . }}]))
{{- end }}

{{/* True if container c requests a GPU. The API server has made the amounts canonical: every zero is "0". */}}
{{- define "aliquot.cel.requestsGpu" -}}
has(c.resources) && has(c.resources.limits) && c.resources.limits.exists(k, k in [{{ include "aliquot.cel.supported" . }}] && string(c.resources.limits[k]) != '0')
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

{{/* True if a request changes only the status and this annotation of a node. Needs the variables new and old. */}}
{{- define "aliquot.cel.onlyAnnotation" -}}
object.spec == oldObject.spec &&
(has(object.metadata.labels) ? object.metadata.labels : {}) == (has(oldObject.metadata.labels) ? oldObject.metadata.labels : {}) &&
(has(object.metadata.finalizers) ? object.metadata.finalizers : []) == (has(oldObject.metadata.finalizers) ? oldObject.metadata.finalizers : []) &&
(has(object.metadata.ownerReferences) ? object.metadata.ownerReferences : []) == (has(oldObject.metadata.ownerReferences) ? oldObject.metadata.ownerReferences : []) &&
variables.new.all(k, k == '{{ . }}' || (k in variables.old && variables.old[k] == variables.new[k])) &&
variables.old.all(k, k == '{{ . }}' || k in variables.new)
{{- end }}

{{/* Policy variables: the annotations after and before the request. */}}
{{- define "aliquot.cel.annotations" -}}
- name: new
  expression: "has(object.metadata.annotations) ? object.metadata.annotations : {}"
- name: old
  expression: "oldObject != null && has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {}"
{{- end }}

{{/*
A simulated GPU as the installer of the simulated driver reads it:
model;memory MiB;multiprocessors;context MiB;NUMA node;links
*/}}
{{- define "aliquot.fakeGpu" -}}
{{- $links := list }}
{{- range $gpu, $link := .links }}{{ $links = append $links (printf "%s=%s" $gpu $link) }}{{ end }}
{{- $parts := list .model (int .memoryMiB) (int .multiprocessors) }}
{{- $placed := or (hasKey . "numa") (not (empty $links)) }}
{{- if or .contextMiB $placed }}{{ $parts = append $parts (int .contextMiB) }}{{ end }}
{{- if $placed }}{{ $parts = append $parts (ternary (toString (int .numa)) "" (hasKey . "numa")) }}{{ end }}
{{- if $links }}{{ $parts = append $parts (join "," $links) }}{{ end }}
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
The RuntimeClass of a name as JSON; {} for none. Looks it up only if Helm talks to a cluster: Helm's default API versions
contain no kinds, a cluster's do.
*/}}
{{- define "aliquot.runtimeClass" -}}
{{- if .root.Capabilities.APIVersions.Has "node.k8s.io/v1/RuntimeClass" -}}
{{- lookup "node.k8s.io/v1" "RuntimeClass" "" .name | toJson -}}
{{- else -}}
{}
{{- end -}}
{{- end }}
