{{/* Labels of every object; its part of Aliquot beside them is app.kubernetes.io/component. */}}
{{- define "aliquot.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
app.kubernetes.io/name: aliquot
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* What selects the pods of a component. Call with (dict "component" NAME "root" $). */}}
{{- define "aliquot.selector" -}}
app.kubernetes.io/name: aliquot
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* An image of ours. Call with (dict "image" VALUES "root" $). */}}
{{- define "aliquot.image" -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{/* kube-scheduler's image: of the cluster's own version, without what providers append to it. */}}
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

{{/* User names of our two accounts. */}}
{{- define "aliquot.schedulerUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:aliquot-scheduler
{{- end }}
{{- define "aliquot.agentUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:aliquot-device-plugin
{{- end }}

{{/*
CEL. What it uses was in Kubernetes 1.29: a server takes expressions only a version after it has learnt them.
*/}}

{{/* The resources that a container may ask us for (module api: Resources.SUPPORTED). */}}
{{- define "aliquot.cel.supported" -}}
'nvidia.com/gpu', 'nvidia.com/gpumem', 'nvidia.com/gpumem-percentage', 'nvidia.com/gpucores'
{{- end }}

{{/* Resources that our webhook turns into ours when a pod is created (module api: ForeignResources.NAMES). */}}
{{- define "aliquot.cel.foreign" -}}
'nvidia.com/priority', 'aliyun.com/gpu', 'aliyun.com/gpu-mem', 'aliyun.com/gpu-core.percentage'
{{- end }}

{{/* All containers of a pod that start by themselves. */}}
{{- define "aliquot.cel.containers" -}}
(object.spec.containers + (has(object.spec.initContainers) ? object.spec.initContainers : []))
{{- end }}

{{/* Whether any container names one of our resources, in whatever amount, or one that the webhook turns into ours. */}}
{{- define "aliquot.cel.names" -}}
{{ include "aliquot.cel.containers" . }}.exists(c, has(c.resources) &&
[has(c.resources.limits) ? c.resources.limits : {}, has(c.resources.requests) ? c.resources.requests : {}].exists(m, m.exists(k,
k in [{{ include "aliquot.cel.supported" . }}, {{ include "aliquot.cel.foreign" . }}])))
{{- end }}

{{/* Whether container c still names a resource that the webhook should have turned into ours. */}}
{{- define "aliquot.cel.namesForeign" -}}
has(c.resources) && [has(c.resources.limits) ? c.resources.limits : {}, has(c.resources.requests) ? c.resources.requests : {}].exists(m, m.exists(k, k in [{{ include "aliquot.cel.foreign" . }}]))
{{- end }}

{{/* Whether container c asks for a GPU. Amounts are canonical here: any zero is written 0. */}}
{{- define "aliquot.cel.asks" -}}
has(c.resources) && has(c.resources.limits) && c.resources.limits.exists(k, k in [{{ include "aliquot.cel.supported" . }}] && string(c.resources.limits[k]) != '0')
{{- end }}

{{/* Whether container c is shown no GPU: one variable of the name, and void its value. */}}
{{- define "aliquot.cel.void" -}}
has(c.env) && c.env.exists_one(e, e.name == 'NVIDIA_VISIBLE_DEVICES') && c.env.exists(e, e.name == 'NVIDIA_VISIBLE_DEVICES' && has(e.value) && e.value == 'void')
{{- end }}

{{/* Whether the request comes from the agent of the node that it changes: by the node that its token is bound to. */}}
{{- define "aliquot.cel.ownAgent" -}}
request.userInfo.username == '{{ include "aliquot.agentUser" . }}' && has(request.userInfo.extra) &&
'authentication.kubernetes.io/node-name' in request.userInfo.extra &&
request.userInfo.extra['authentication.kubernetes.io/node-name'] == [object.metadata.name]
{{- end }}

{{/* Whether a node is as it was but for its status and this annotation. Needs the variables new and old. */}}
{{- define "aliquot.cel.onlyAnnotation" -}}
object.spec == oldObject.spec &&
(has(object.metadata.labels) ? object.metadata.labels : {}) == (has(oldObject.metadata.labels) ? oldObject.metadata.labels : {}) &&
(has(object.metadata.finalizers) ? object.metadata.finalizers : []) == (has(oldObject.metadata.finalizers) ? oldObject.metadata.finalizers : []) &&
(has(object.metadata.ownerReferences) ? object.metadata.ownerReferences : []) == (has(oldObject.metadata.ownerReferences) ? oldObject.metadata.ownerReferences : []) &&
variables.new.all(k, k == '{{ . }}' || (k in variables.old && variables.old[k] == variables.new[k])) &&
variables.old.all(k, k == '{{ . }}' || k in variables.new)
{{- end }}

{{/* Annotations before and after, for the policies' variables. */}}
{{- define "aliquot.cel.annotations" -}}
- name: new
  expression: "has(object.metadata.annotations) ? object.metadata.annotations : {}"
- name: old
  expression: "oldObject != null && has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {}"
{{- end }}

{{/*
What the fake driver's installer reads of a GPU: model;memory MiB;multiprocessors;context MiB;NUMA domain;links
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

{{/* A list of GPUs for each node that is named, and one for the others. */}}
{{- define "aliquot.fakeGpus" -}}
{{- range $node, $gpus := .Values.fakeDriver.nodes }}
{{ eq $node "*" | ternary "default" (printf "node.%s" $node) }}: |
  {{- range $gpus }}
  {{ include "aliquot.fakeGpu" . }}
  {{- end }}
{{- end }}
{{- end }}

{{/*
The RuntimeClass of a name as JSON, {} for none. Asked for only where there is a cluster to ask: a server's kinds are
among the API versions then, and not in what Helm believes without one.
*/}}
{{- define "aliquot.runtimeClass" -}}
{{- if .root.Capabilities.APIVersions.Has "node.k8s.io/v1/RuntimeClass" -}}
{{- lookup "node.k8s.io/v1" "RuntimeClass" "" .name | toJson -}}
{{- else -}}
{}
{{- end -}}
{{- end }}
